"""What a batch costs, as weighted sums."""

from jaxlm.objectives.objective import Batch, Objective, Sums, build_objective

__all__ = ["Batch", "Objective", "Sums", "build_objective"]
