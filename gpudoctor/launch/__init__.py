"""Start a training run under watch: engine, output, watchdog, captures, and how each rank ended."""
