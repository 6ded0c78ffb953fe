"""Keywords that several algorithms share: each is written once, as `Annotated[type, default, meaning]`."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast, get_origin, get_type_hints

from typing_extensions import TypedDict

from sb_dqn.acting.lane_state import Redraws
from sb_dqn.checks import check_bool, check_int, check_switch
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.normalize.rewards import bounded_returns
from sb_dqn.types import Settings


class TrainingKeywords(TypedDict, total=False):
    """Keywords of every algorithm."""

    action_mask: Annotated[
        str | None,
        None,
        'source of the legal actions: "info" (`info["action_mask"]`) or a key of a Dict observation.',
    ]
    normalize_observations: Annotated[
        bool | Settings,
        False,
        "normalize Box observations of floats by their running mean and standard deviation: True, or a dict of `clip`, "
        "`epsilon`, `keys`.",
    ]
    normalize_rewards: Annotated[
        bool | Settings,
        False,
        "divide rewards by the running standard deviation of the return: True, or a dict of `clip`, `epsilon`.",
    ]
    stats_window_size: Annotated[int, 100, "number of episodes in the logged means."]
    tensorboard_log: Annotated[str | None, None, "folder for TensorBoard files."]
    verbose: Annotated[int, 0, "0 silent, 1 logs to stdout."]
    seed: Annotated[int | None, None, "seed of all random generators; None draws one."]
    device: Annotated[
        Any,
        "auto",
        '"cpu", "cuda", "cuda:1", or "auto": CUDA where available, except for small networks, which are faster on a CPU.',
    ]
    torch_compile: Annotated[
        bool, False, "compile the update with torch.compile (needs a C++ compiler; slow to start)."
    ]


VALUE_LOSS = Annotated[
    bool | str | Settings,
    False,
    'values by classification (arXiv 2403.03950): True or "hl_gauss", "two_hot", or a dict of `kind`, `bins`, `v_min`, `v_max`, '
    "`transform`, see DQN; False: regression.",
]
USE_SDE = Annotated[
    bool,
    False,
    "generalized state-dependent exploration for Box actions (arXiv 2005.05719): noise that is a function of the features, "
    "the same function for several steps.",
]
SDE_SAMPLE_FREQ = Annotated[
    int,
    -1,
    "with `use_sde`: ticks between new functions of the noise, from the start of each rollout (off-policy: of `train_freq` "
    "steps) on; -1: one for all of it, and for each episode if `train_freq` is in episodes.",
]


class OnPolicyKeywords(TrainingKeywords, total=False):
    """Keywords of every algorithm that learns from rollouts or episodes."""

    precision: Annotated[
        str,
        "fp32",
        '"fp32", or "bf16": bfloat16 forward and backward with float32 master weights; "auto": "bf16" where the device has '
        'instructions for it, else "fp32".',
    ]


class CriticKeywords(OnPolicyKeywords, total=False):
    """Keywords of every algorithm that learns a state value."""

    value_loss: VALUE_LOSS


class ActorCriticKeywords(CriticKeywords, total=False):
    """Keywords of A2C and PPO."""

    use_sde: USE_SDE
    sde_sample_freq: SDE_SAMPLE_FREQ


class OffPolicyKeywords(TrainingKeywords, total=False):
    """Keywords of every algorithm that learns from a replay buffer."""

    prioritized_replay: Annotated[
        bool | Settings,
        False,
        "sampling in proportion to the TD error (arXiv 1511.05952): True, or a dict of `alpha`, `beta`, `eps`, `initial`, "
        "`uniform_mix`.",
    ]
    buffer_device: Annotated[str | None, None, "device of the replay; None: that of the networks."]
    buffer_path: Annotated[str | None, None, "memory-mapped file for the replay; None: memory."]
    actors: Annotated[
        Any,
        None,
        'who steps the environments: None, the learner itself in turn; "overlapped", a thread while the learner learns; '
        '`OverlappedActors(groups, lanes=k)`, groups of k lanes in turn, or its short form "overlapped:2x4"; '
        '`ProcessActors(n, lanes=k)`, n processes of k lanes each, or its short form "process:8x2".',
    ]
    hindsight: Annotated[
        bool | Settings,
        False,
        'hindsight experience replay for tasks whose observations have the keys "achieved_goal" and "desired_goal" (arXiv '
        "1707.01495): True, or a dict of `n_sampled_goal`, `goal_selection_strategy`.",
    ]
    resets: Annotated[
        bool | int | Settings,
        False,
        "number of updates after which the networks are drawn again, while the replay stays (arXiv 2205.07802), or a dict of "
        "`every`, `keep`, `until`, see `Resets`.",
    ]
    redo: Annotated[
        bool | int | Settings,
        False,
        "recycling of dormant units (ReDo, arXiv 2302.12902): True, a number of updates, or a dict of `every`, `threshold`, "
        "`reset_counts`, see `Redo`.",
    ]
    augmentation: Annotated[
        bool | Settings,
        False,
        "random shifts and intensities of the images of each batch (arXiv 2004.13649): True, or a dict of `shift`, `intensity`.",
    ]


class SACKeywords(OffPolicyKeywords, total=False):
    """Keywords of SAC."""

    value_loss: VALUE_LOSS
    use_sde: USE_SDE
    sde_sample_freq: SDE_SAMPLE_FREQ
    use_sde_at_warmup: Annotated[
        bool, False, "with `use_sde`: the policy selects the actions before `learning_starts`, too."
    ]
    action_noise: Annotated[
        bool | Settings,
        False,
        "noise that is added to the actions of a Box: True, or a dict of `sigma`, `mean`, `theta`, `dt`.",
    ]


T = TypeVar("T", bound=Settings)


def shared_keywords(kind: type[Any]) -> dict[str, Any]:
    """Returns the `Annotated` types of the keywords of a `TypedDict` by name, without keywords that have a type only."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}


def with_defaults(kind: type[T], passed: T) -> T:
    """Returns keywords with the defaults of those that were not passed."""
    return cast(T, {name: hint.__metadata__[0] for name, hint in shared_keywords(kind).items()} | dict(passed))


def value_bins(value_loss: object, keywords: TrainingKeywords) -> Bins | None:
    """Returns the settings of values by classification; None without it. An automatic range is one for bounded returns.

    Args:
        value_loss: the argument.
        keywords: its `normalize_rewards` is changed to that of bounded returns for an automatic range.

    Raises:
        ConfigurationError: a value is out of range.
    """
    bins = check_switch("value_loss", value_loss, Bins, text="kind")
    if bins is not None and bins.scales_rewards:
        keywords["normalize_rewards"] = bounded_returns(keywords["normalize_rewards"])
    return bins


def sde_redraws(keywords: Settings, period: int) -> Redraws | None:
    """Returns when the noise of state-dependent exploration changes; None without it.

    Args:
        keywords: `use_sde` and `sde_sample_freq`.
        period: ticks after which the noise changes in any case.

    Raises:
        ConfigurationError: a value is out of range.
    """
    every = check_int("sde_sample_freq", keywords["sde_sample_freq"], -1)
    if not check_bool("use_sde", keywords["use_sde"]):
        return None
    return Redraws(period, max(every, 0))
