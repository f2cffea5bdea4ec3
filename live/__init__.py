"""All that crosses the process border: model files, a running engine's metrics and events, NVML."""
