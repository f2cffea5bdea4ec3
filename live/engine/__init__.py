"""What runs with vLLM installed, in a process of its own."""
