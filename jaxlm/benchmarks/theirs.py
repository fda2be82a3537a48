"""The worker that trains a class of transformers with PyTorch, eager, on random tokens. Does without JAX."""

from __future__ import annotations

from typing import Any

from jaxlm import command_line
from jaxlm.benchmarks.worker import Built, serve


def build(job: dict[str, Any]) -> Built:
    """Makes the model of the class `job["class_name"]` whose config.json would be `job["model"]`.

    The step does what ours does: forward, loss, backward, clipping if the configuration clips, AdamW (fused).
    """
    import numpy as np
    import torch
    import transformers

    train, optimizer, low_precision = job["train"], job["optimizer"], job["dtype"] == "bfloat16"
    model_class: Any = getattr(transformers, job["class_name"])
    torch.manual_seed(job["seed"])
    model = model_class(model_class.config_class(**job["model"])).train()
    adamw = torch.optim.AdamW(
        model.parameters(),
        lr=train["learning_rate"],
        betas=(optimizer["beta1"], optimizer["beta2"]),
        eps=optimizer["eps"],
        weight_decay=optimizer["weight_decay"],
        fused=True,
    )
    shape = (train["batch_tokens"] // train["seq_len"], train["seq_len"])
    tokens = torch.from_numpy(np.random.default_rng(job["seed"]).integers(0, job["model"]["vocab_size"], shape))

    def step() -> float:
        adamw.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        if optimizer["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip_norm"])
        adamw.step()
        return loss.item()

    facts = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "attention": model.config._attn_implementation,
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    return Built(facts, step)


if __name__ == "__main__":
    command_line.run(lambda argv: serve(build))
