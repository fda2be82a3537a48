"""What a study asks, looked at before hours are spent on models that are to be asked it."""

from __future__ import annotations

from jaxlm.errors import UserError
from jaxlm.evaluation import averages, held_out_tasks, tasks
from jaxlm.evaluation.benchmark_table import CONTROLS
from jaxlm.fields import nearest
from jaxlm.study_config import StudyConfig, listed


def check(config: StudyConfig) -> None:
    """Raises UserError for a control that there is not, an unknown task, and a mean or `truth` of tasks not asked."""
    asked = config.evaluate
    for control in listed(asked.controls):
        if control not in CONTROLS:
            raise UserError(f"evaluate.controls has {control!r}, allowed: {', '.join(CONTROLS)}")
    own = held_out_tasks.TASKS if asked.held_out_items else ()
    names = tasks.expand(listed(asked.tasks)) if asked.tasks else ()
    known = {*names, *own, *tasks.STUDY}  # a published mean or task that is not asked is a dash in the report
    catalogue = tasks.Catalogue(names, asked.include_path) if names or own else None
    for field in ("mean", "truth"):
        for name in () if getattr(asked, field) in averages.MEANS else listed(getattr(asked, field)):
            if name not in known and (catalogue is None or not catalogue.has(name)):
                raise UserError(f"evaluate.{field} has {name!r}, which is not asked; {nearest(name, known)}")
