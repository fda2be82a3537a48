"""The loop that turns batches into parameters: state, step, optimizer, sharding, checkpoints, metrics, workdir."""
