"""From text to fixed windows on disk, and from there to batches."""
