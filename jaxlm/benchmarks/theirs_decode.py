"""The worker that continues prompts with `transformers.generate`, greedily and with its cache. Does without JAX."""

from __future__ import annotations

from typing import Any

from jaxlm import command_line
from jaxlm.benchmarks.worker import Built, serve


def build(job: dict[str, Any]) -> Built:
    """Loads the model directory `job["directory"]`; a unit of work is `job["new_tokens"]` behind `job["prompts"]`."""
    import torch
    import transformers

    trust = {"trust_remote_code": True} if job["remote_code"] else {}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        job["directory"], dtype=getattr(torch, job["dtype"]), local_files_only=True, **trust
    ).eval()
    model.generation_config.eos_token_id = None  # as many tokens as asked for
    ids = torch.tensor(job["prompts"])
    new: list[list[int]] = []

    def step() -> float:
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=job["new_tokens"],
            do_sample=False,
            suppress_tokens=job["never"] or None,
        )
        new[:] = out[:, ids.shape[1] :].tolist()
        return float(sum(map(sum, new)))

    step()
    facts = {
        "tokens": new[:],
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    return Built(facts, step)


if __name__ == "__main__":
    command_line.run(lambda argv: serve(build))
