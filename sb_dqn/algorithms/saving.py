"""Models through files: `save`, `load`, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from typing_extensions import Self

from sb_dqn.algorithms import persistence
from sb_dqn.algorithms.attributes import Attributes
from sb_dqn.exploration import Exploration
from sb_dqn.policies.base import Policy


class Saving(Attributes):
    """The verbs of a model that read and write files."""

    exploration: Exploration | None
    policy: Policy

    def save(self, path: str | Path | IO[bytes]) -> Any:
        """Writes parameters, optimiser, counters and exploration to a zip, whole or not at all.

        Raises:
            CheckpointError: an argument of the constructor cannot be written.
        """
        return persistence.save_model(
            path, type(self).__name__, self.arguments, self.blueprint, self.policy, self._parts()
        )

    @classmethod
    def load(
        cls,
        path: str | Path | IO[bytes],
        env: Any = None,
        device: str | torch.device = "auto",
        custom_objects: Mapping[str, Any] | None = None,
        trust: bool = False,
        **kwargs: Any,
    ) -> Self:
        """A model from a zip that `save` wrote; nothing in it is run.

        Args:
            path: of the zip.
            env: to learn from; None loads a model that can predict.
            device: "auto", "cpu", "cuda".
            custom_objects: by name of a constructor argument, what to use instead of what the file says.
            trust: import or unpickle what the file names (a policy class of your own, a function as a schedule).
            kwargs: constructor arguments to change.

        Raises:
            CheckpointError: the file is damaged, foreign, or needs trust.
            SpaceError: the spaces of `env` differ from the model's.
        """
        saved = persistence.read_model(path, {**(custom_objects or {}), **kwargs}, trust)
        made_by = persistence.find_class(cls, saved.class_name)
        arguments = {**saved.arguments, **kwargs, "device": device}
        outside = persistence.outside_of(saved.blueprint, env, arguments.get("action_mask"))
        model: Self = made_by(arguments.pop("policy"), outside, **arguments)
        persistence.write_policy(model.policy, saved.policy)
        for name, part in model._parts().items():
            part.load_state_dict(saved.parts[name])
        model.learner.refresh()
        return model

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """State of the policy (online and target nets) and of the optimiser, by name."""
        return {"policy": self.policy.state_dict(), "policy.optimizer": self.learner.optimizer.state_dict()}

    def set_parameters(self, load_path_or_dict: Any, exact_match: bool = True, device: str = "auto") -> None:
        """Writes parameters from a dict such as `get_parameters` returns, or from a zip.

        Raises:
            ConfigurationError: names or shapes do not fit.
        """
        given = persistence.read_parameters(load_path_or_dict, exact_match)
        if "policy" in given:
            persistence.write_policy(self.policy, given["policy"], exact_match)
            self.learner.refresh()
        if "policy.optimizer" in given:
            self.learner.optimizer.load_state_dict(given["policy.optimizer"])

    def _parts(self) -> dict[str, persistence.Stateful]:
        """What a checkpoint holds beside the policy."""
        exploring: dict[str, Any] = {} if self.exploration is None else {"exploration": self.exploration}
        return {"learner": self.learner, **exploring, "counters": self.counters, "rng": self.rng}
