"""One module a model family: a config in, the modules that vLLM builds out."""
