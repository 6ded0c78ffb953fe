"""R2D2 (Kapturowski et al. 2019, ICLR; rlpyt's R2D1): recurrent Q-learning on replayed sequences."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, cast

from typing_extensions import Unpack

from sb_dqn.algorithms.dqn import DQN, DQNKeywords, ReturnModel
from sb_dqn.buffers.sequences import Sequences
from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_switch, merge_defaults
from sb_dqn.core.construction import adam_eps
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.transforms import IDENTITY, rescaling
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.nn.heads.scalar import Scalar
from sb_dqn.objectives.q_learning import LOSSES, QLearning
from sb_dqn.policies import VALUE_POLICIES, QPolicy, policy_class
from sb_dqn.types import EnvLike, Settings

TARGET_UPDATES = 2_500
"""Updates between target updates, in the paper and in rlpyt."""
PRIORITIES: Settings = {"alpha": 0.9, "beta": 0.6}
REPLACED_ARGUMENTS = {
    "batch_size": "Set batch_B, the number of sequences",
    "train_freq": "Set replay_ratio",
    "gradient_steps": "Set replay_ratio",
    "sequences": "Set batch_T, warmup_T, store_rnn_state_interval, pri_eta, input_priorities and input_priority_shift",
    "return_model": "Remove it: the class has its own",
}
"""Keywords of DQN that R2D2 replaces by its own."""


class R2D2(DQN):
    """Recurrent replay distributed DQN: LSTM, stored states, burn-in, sequence priorities, value rescaling.

    Defaults are those of the paper. It is designed for many lanes with fixed epsilons from 0.4 (first lane) to 0.0007 (last
    lane). A single lane has 0.4; use `exploration="epsilon"` there.

    Args:
        policy: "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy", or a subclass of RecurrentQPolicy.
        batch_T: length of the trained part of a sequence.
        batch_B: number of sequences per update.
        warmup_T: length of the burn-in before it.
        store_rnn_state_interval: steps between stored recurrent states, where sequences start; consecutive sequences overlap
            by `batch_T - store_rnn_state_interval` steps. With 1 a state is stored at every step; with 0 sequences start
            anywhere with a state of zeros.
        replay_ratio: replayed steps per env step, above 0; kept exactly.
        count_burn_in: True counts the burn-in as replayed steps, as rlpyt does; the paper counts only trained steps.
        pri_eta: weight of the largest error in the priority of a sequence, see `Sequences.eta`.
        input_priorities, input_priority_shift: see `Sequences`.
        value_rescale_eps: epsilon of value rescaling. If None, values are not rescaled, as `value_loss` needs it.
        loss: "mse" (half the squared error) or "huber".
        target_update_interval: env steps between target updates. If None, they are the env steps of 2,500 updates.
        kwargs: keywords of DQN.
    """

    spread_updates = True
    replaced_arguments = REPLACED_ARGUMENTS
    defaults: ClassVar[DQNKeywords] = {
        "loss": "mse",
        "learning_rate": 1e-4,
        "learning_starts": 100_000,
        "gamma": 0.997,
        "n_steps": 5,
        "target_update_interval": None,  # type: ignore[typeddict-item]  # DQN has no such default
        "max_grad_norm": 80.0,
        "double_q": True,
        "dueling": True,
        "prioritized_replay": PRIORITIES,
        "exploration": {"schedule": 0.4, "ladder": "apex"},
    }

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        *,
        batch_T: int = 80,
        batch_B: int = 64,
        warmup_T: int = 40,
        store_rnn_state_interval: int = 40,
        replay_ratio: float = 1.0,
        count_burn_in: bool = True,
        pri_eta: float = 0.9,
        input_priorities: bool = True,
        input_priority_shift: int | None = None,
        value_rescale_eps: float | None = 1e-3,
        **kwargs: Unpack[DQNKeywords],
    ) -> None:
        if not policy_class(policy, VALUE_POLICIES, QPolicy).recurrent:
            raise ConfigurationError(
                f"policy must be recurrent, got {policy!r}. Use 'MlpLstmPolicy', 'CnnLstmPolicy' or 'MultiInputLstmPolicy', or DQN."
            )
        sequences = Sequences(
            batch_T=batch_T,
            warmup_T=warmup_T,
            store_rnn_state_interval=store_rnn_state_interval,
            input_priorities=check_bool("input_priorities", input_priorities),
            input_priority_shift=input_priority_shift,
            eta=check_float("pri_eta", pri_eta, 0.0, 1.0),
        )
        kwargs = self.defaults | kwargs
        bins = check_switch("value_loss", kwargs.get("value_loss", False), Bins, text="kind")
        transform = IDENTITY
        if value_rescale_eps is not None:
            transform = rescaling(check_float("value_rescale_eps", value_rescale_eps, 0.0))
            if bins is not None:
                raise ConfigurationError(
                    f"value_rescale_eps must be None with value_loss, got {value_rescale_eps}. Set it to None; value_loss has the "
                    f"transform 'symlog' for large returns."
                )
        steps = sequences.batch_T + check_bool("count_burn_in", count_burn_in) * sequences.warmup_T
        batch_B = check_int("batch_B", batch_B, 1)
        train_freq, gradient_steps = update_cadence(
            steps * batch_B, check_float("replay_ratio", replay_ratio, 0.0, above=True)
        )
        if cast(Any, kwargs["target_update_interval"]) is None:
            kwargs["target_update_interval"] = max(1, TARGET_UPDATES * train_freq // gradient_steps)
        objective = partial(QLearning, loss=check_choice("loss", kwargs.pop("loss"), LOSSES), transform=transform)
        kwargs |= {
            "batch_size": batch_B,
            "train_freq": train_freq,
            "gradient_steps": gradient_steps,
            "sequences": sequences,
            "prioritized_replay": merge_defaults(kwargs["prioritized_replay"], PRIORITIES),
            "policy_kwargs": {"previous_reward": True, **adam_eps(kwargs.get("policy_kwargs"), 1e-3)},
        }
        super().__init__(policy, env, return_model=ReturnModel(bins or Scalar(), objective, transform), **kwargs)


R2D1 = R2D2


def update_cadence(consumed: int, replay_ratio: float) -> tuple[int, int]:
    """Returns (env steps, updates in that time) for a replay ratio.

    Args:
        consumed: steps of one batch, >= 1.
        replay_ratio: replayed steps per env step, above 0.
    """
    found = consumed / Fraction(str(replay_ratio))  # exactly as written: 0.1 is a tenth
    return found.numerator, found.denominator
