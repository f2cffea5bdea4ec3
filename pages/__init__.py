"""What a person sees: one script a page, shared parts in `parts`."""
