"""Measures of a diagnosis: meaning, bounds, the source of the bounds, and the setting that usually helps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor


class Measure(NamedTuple):
    """A number of a model, and the bounds outside of which it is a finding."""

    meaning: str
    low: float = -math.inf
    high: float = math.inf
    source: str = ""
    """Where the bounds, or the values to compare with, come from."""
    advice: str = ""
    """The setting that usually helps, as a sentence."""

    @property
    def bounds(self) -> str:
        """Returns the bounds as text; empty if there are none."""
        parts = [f">= {self.low:g}"] * (self.low > -math.inf) + [f"<= {self.high:g}"] * (self.high < math.inf)
        return " and ".join(parts)


SETTING = "experience with this library's presets"
MEASURES = {
    "updates": Measure(
        "updates since the model was made, once there are some or the run is over",
        low=1,
        source="without an update nothing is learned",
        advice="Lower learning_starts or train_freq, or learn for more env steps.",
    ),
    "learning_rate": Measure(
        "learning rate, the larger of the first and the present one",
        high=0.02,
        source="five times the largest of the presets",
        advice="Lower learning_rate: 1e-4 to 1e-3 suits Adam on most tasks.",
    ),
    "adam_epsilon": Measure(
        "Adam's epsilon, divided by the median root mean square of the gradients that its moments have",
        high=10.0,
        source="0 to 2.5 where runs learned; 20 and more where R2D2 with small networks and the paper's 0.001 did not",
        advice="Set policy_kwargs=dict(optimizer_kwargs=dict(eps=1e-8)): a larger epsilon than the gradients makes steps small.",
    ),
    "td_error_growth": Measure(
        "TD error of a batch after one update on it, divided by that before",
        high=2.0,
        source="an update should reduce the error of its own batch",
        advice="Lower learning_rate: an update makes the error of its own batch larger.",
    ),
    "policy_churn": Measure(
        "share of different states in which one update changes the greedy action, which was better by more than 1 %",
        high=0.3,
        source="Schaul et al. 2022 (arXiv 2206.00730): 9 % for DQN; BTR 3.8 %, without Munchausen 11 %, without IQN 0.5 %",
        advice="Lower learning_rate, or raise batch_size: a single update changes the policy in too many states.",
    ),
    "gradient_norm": Measure("norm of the gradient of a batch, before clipping"),
    "non_finite": Measure(
        "parameters and gradients that are NaN or infinite",
        high=0,
        source="none can be right",
        advice="Lower learning_rate, set max_grad_norm, and bound the rewards; go on from the last checkpoint.",
    ),
    "frozen_layers": Measure(
        "weights that do not learn: frozen, without a gradient, or unchanged since the last look",
        high=0,
        source="each layer of a network learns, unless it is frozen on purpose",
        advice="Set requires_grad_(True) for the layers that should learn, and pass all parameters to the optimizer.",
    ),
    "dormant_units": Measure(
        "share of dormant units (score <= 0.025) in the layer with the most of them",
        high=0.8,
        source="Sokar et al. 2023 (arXiv 2302.12902); half of 64 units is usual in small networks that learn",
        advice="Set redo=True (classes with a replay buffer), which recycles dormant units, or lower learning_rate and set "
        "policy_kwargs=dict(layer_norm=True) in a new model.",
    ),
    "greedy_actions": Measure(
        "different greedy actions in the sample, after 10,000 updates",
        low=2,
        source="with one action everywhere, the values do not depend on the state",
        advice="Unless one action is the best everywhere, make a new model with a lower learning_rate, and with dueling set "
        "policy_kwargs=dict(share_last_layer=True); dormant_units tells whether units have died.",
    ),
    "effective_rank": Measure(
        "effective rank of the last hidden layer: singular values that make up 99 % of their sum",
        low=1,
        source="Kumar et al. 2021 (arXiv 2010.14498); 1 to 25 of 64 in small networks that learn",
        advice="Lower learning_rate or set policy_kwargs=dict(layer_norm=True), in a new model: all features are 0.",
    ),
    "action_gap": Measure(
        "mean difference between the two best action values",
        source="BTR 0.282, without Munchausen 0.055, without IQN 0.180 (Atari, clipped rewards)",
    ),
    "overestimation": Measure(
        "mean value above the largest return of the sample (and above 0 before 10,000 updates), in units of the spread of returns",
        high=0.5,
        source="van Hasselt et al. 2016 (arXiv 1509.06461)",
        advice="Set double_q=True, lower learning_rate, or raise target_update_interval, and for recorded data cql_alpha=1.0: values "
        "exceed all returns.",
    ),
    "td_error": Measure("mean absolute TD error of a batch (categorical values: mean loss)"),
    "td_error_tail": Measure("largest TD error of a batch, divided by the mean"),
    "priority_share": Measure(
        "share of the replay that the priorities concentrate on, (sum p)^2 / (N sum p^2)",
        low=0.01,
        source="1 is uniform sampling",
        advice="Lower prioritized_replay['alpha'] or set its uniform_mix: few transitions make up most of each batch.",
    ),
    "target_share": Measure(
        "share of the target network that comes from copies by the end of the run",
        low=0.5,
        source="0 is the initial network",
        advice="Lower target_update_interval, or raise tau: the target network (almost) never follows.",
    ),
    "replay_ratio": Measure(
        "replayed steps per env step since learning_starts",
        low=0.25,
        source="8 of DQN on Atari: a batch of 32 every 4 env steps",
        advice="Raise gradient_steps (-1 makes an update for each env step) or batch_size, or lower train_freq: most steps are never "
        "learned from.",
    ),
    "replay_rows": Measure(
        "capacity of a replay that does not hold the whole run, in transitions",
        low=1_000,
        source="Fedus et al. 2020 (arXiv 2007.06700)",
        advice="Raise buffer_size: 10,000 for small tasks, 1,000,000 for Atari.",
    ),
    "replay_episodes": Measure(
        "capacity of a replay that does not hold the whole run, in episodes",
        low=3,
        source=SETTING,
        advice="Raise buffer_size, so that it holds many episodes.",
    ),
    "replay_age": Measure(
        "gradient steps since the oldest stored transition",
        source="Fedus et al. 2020 (arXiv 2007.06700): 250,000 for DQN on Atari",
    ),
    "horizon": Measure(
        "effective horizon 1 / (1 - gamma) in steps, where episodes are longer",
        low=5,
        source="rewards beyond it hardly count",
        advice="Raise gamma: 0.99 looks 100 steps ahead.",
    ),
    "explained_variance": Measure(
        "share of the variance of the returns that the values explain",
        low=-1,
        source="1 is perfect, 0 that of a constant",
        advice="Raise vf_coef or n_epochs, lower learning_rate, or set normalize_rewards=True: the critic is worse than none.",
    ),
    "exploration": Measure(
        "largest epsilon or temperature after learning_starts; of a stochastic policy its spread (1: uniform, or half the bounds)",
        low=0.005,
        source="0 never tries another action",
        advice="Raise exploration_initial_eps or exploration_fraction (Q-learning), ent_coef or log_std_init (policies), or set "
        "noisy=True.",
    ),
    "reward_scale": Measure(
        "largest reward of the sample, as the loss reads it",
        high=1_000,
        source="losses and default learning rates suit rewards around 1",
        advice="Set normalize_rewards=True, or divide the rewards.",
    ),
    "rewarded_steps": Measure(
        "steps of the sample with a reward, after 10,000 updates",
        low=1,
        source="where all returns are equal, no action looks better than another",
        advice="Explore longer and more (exploration_fraction, exploration_final_eps, ent_coef, ensemble=10), or give a reward on the "
        "way: the agent finds no rewards, or no longer finds them.",
    ),
    "observation_scale": Measure(
        "largest mean size of an input of the network",
        high=20,
        source="initial weights suit inputs around 1 (LeCun et al. 1998, Efficient BackProp)",
        advice="Set normalize_observations=True, or scale the observations.",
    ),
    "observation_spread": Measure(
        "largest standard deviation of an input of the network, over stored rows",
        low=0.01,
        source="where all observations look alike, so do the values of all states",
        advice="Return the new state from step (if this is 0), images as bytes up to 255, or set normalize_observations=True: a "
        "network hardly sees smaller differences.",
    ),
    "legal_actions": Measure(
        "mean number of legal actions",
        low=1.05,
        source="with one legal action there is nothing to learn",
        advice="Check the action masks: True means legal.",
    ),
    "never_legal": Measure(
        "actions that the masks of the whole sample forbid",
        high=0,
        source="an action that is never legal need not be in the action space",
        advice="Check the action masks: True means legal.",
    ),
}
"""All measures, by name. Those without bounds are there to compare with."""


class Finding(NamedTuple):
    """A measure outside of its bounds."""

    name: str
    value: float
    threshold: float
    source: str
    sentence: str
    """What is wrong, with the setting that usually helps."""


@dataclass
class Diagnosis:
    """Measures of a model; prints as a table with the findings below it."""

    values: dict[str, float]
    """Those of `MEASURES` that the model has, by name."""
    details: Mapping[str, str] = field(default_factory=dict)
    """By name, which parts a measure refers to."""
    parameters: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    """Copy of the parameters by name, for the next look."""
    n_updates: int = 0

    @property
    def findings(self) -> list[Finding]:
        """The measures outside of their bounds, each with one sentence of advice."""
        found = []
        for name, value in self.values.items():
            measure = MEASURES[name]
            if measure.low <= value <= measure.high:
                continue
            threshold = measure.low if value < measure.low else measure.high
            where = f" ({self.details[name]})" if name in self.details else ""
            sentence = f"{name} = {value:.4g}, should be {measure.bounds}{where}. {measure.advice}"
            found.append(Finding(name, value, threshold, measure.source, sentence))
        return found

    def __str__(self) -> str:
        rows = [
            (name, f"{value:.4g}", MEASURES[name].bounds, MEASURES[name].meaning) for name, value in self.values.items()
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        findings = [f"! {finding.sentence} [{finding.source}]" for finding in self.findings]
        return "\n".join([*lines, "", *(findings or ["no findings"])])
