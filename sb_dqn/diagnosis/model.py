"""Diagnosis of a model: all measures that it has, without changing it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.devices import training_modes
from sb_dqn.diagnosis.first_learn import input_size, inputs_of
from sb_dqn.diagnosis.measures import Diagnosis
from sb_dqn.diagnosis.sample import Sample, greedy_episodes, newest_rows, training_batch
from sb_dqn.losses.transforms import IDENTITY
from sb_dqn.nn.heads.distributions import Categorical, SquashedGaussian
from sb_dqn.nn.parameters.flat import flat_copy, flat_views
from sb_dqn.nn.units import dormant_share, watched
from sb_dqn.policies import QPolicy
from sb_dqn.policies.base import StochasticPolicy
from sb_dqn.spaces import actions_of
from sb_dqn.types import Batch, EnvLike, ModelLike

FORBIDDEN = -1e20
"""Values below are those of illegal actions."""
FORBIDDEN_LOG = -1e8
"""Log-probabilities below are those of illegal actions."""
RANK = 0.99
"""Share of the sum of the singular values that the effective rank holds (Kumar et al. 2021)."""
EARLY = 10_000
"""Updates before which the same greedy action everywhere, a sample without a reward, or values up to 0 are no finding."""
STATES = 100
"""Fewest sampled states that show whether greedy actions or observations differ."""
ALIKE = 0.01
"""Action gap as a share of the mean size of the values, below which it hardly matters which action is greedy."""
MOVED = 0.01
"""Share of the bounds by which an action of a Box moves to count as another one."""


def diagnose(
    model: ModelLike, experience: object, env: EnvLike = None, episodes: int = 5, since: Diagnosis | None = None
) -> Diagnosis:
    """Returns the measures of a model. It works on copies, with random numbers of its own: nothing of a run changes.

    Args:
        model: the model.
        experience: its replay or rollout, None before it has an environment.
        env: environment on which it plays greedy episodes in place of stored rows; None: it plays none.
        episodes: number of these.
        since: an earlier diagnosis, to compare parameters with.
    """
    with training_modes():
        look = _Look(model, experience, env, episodes, since)
        look.read_settings()
        look.read_replay()
        if look.sample is not None:
            look.read_sample(look.sample)
        look.read_networks()
    return Diagnosis(look.values, look.details, look.parameters, model.counters.n_updates)


class _Look:
    """One look at a model.

    Args: see `diagnose`.
    """

    def __init__(self, model: ModelLike, experience: Any, env: EnvLike, episodes: int, since: Diagnosis | None) -> None:
        self.model, self.experience, self.since = model, experience, since
        self.values: dict[str, float] = {}
        self.details: dict[str, str] = {}
        self.policy = copy.deepcopy(model.policy)
        if isinstance(self.policy, QPolicy):  # the network that learns, whichever acts
            self.policy.config = replace(self.policy.config, act_with="online")
        self.online, target = self.policy.networks
        self.target = self.online if target is None else target
        self.parameters = {name: p.detach().clone() for name, p in self.online.named_parameters()}
        self.sample: Sample | None = None
        self.is_played = env is not None
        self.distinct: Tensor | None = None
        """`[S]` bool, False where the best two actions have almost the same value; None where there are no values to compare."""
        if env is not None:
            self.sample = greedy_episodes(model, env, model.discount, episodes)
        elif experience is not None and experience.ring.cursor.any():
            self.sample = newest_rows(experience.ring, model.discount, model.normalizer.rewards)
        length = model.statistics.mean_length
        if not math.isfinite(length):  # no episode has ended since the model was made or loaded
            length = self.sample.length if self.sample is not None else 0.0
        self.length = max(length, float(model.statistics.lengths.max()))
        counters = model.counters
        self.steps = counters.lifetime + max(counters.horizon - counters.num_timesteps, 0)
        """Env steps at the end of the run."""

    # -- settings and replay

    def read_settings(self) -> None:
        model, counters = self.model, self.model.counters
        if counters.n_updates or 0 < counters.lifetime >= self.steps:  # within a run, they may be still to come
            self.values["updates"] = float(counters.n_updates)
        if not isinstance(model.learner.optimizer, torch.optim.SGD):
            times = (0, counters.num_timesteps)
            self.values["learning_rate"] = max(model.rate_schedule(step, max(counters.horizon, 1)) for step in times)
        horizon = 1.0 / max(1.0 - model.discount, 1e-9)
        if self.length >= 2.0 * horizon:
            self.values["horizon"] = horizon
        config = getattr(model, "target_config", None)
        if config is not None and (self.target is not self.online or config.shared) and counters.n_updates:
            clock = counters.n_updates * self.steps / counters.lifetime if config.by_updates else self.steps - 1
            self.values["target_share"] = 1.0 - (1.0 - config.tau) ** int(clock // config.interval)
        network = self.policy.config if isinstance(self.policy, QPolicy) else None
        if network is not None and not (network.noisy or network.ensemble) and model.exploration is not None:
            schedule, off = model.exploration.schedule, model.exploration.off_after == 0
            replay = getattr(model, "replay_config", None)  # actions are random until its learning_starts
            start = replay.schedule.learning_starts if replay is not None and counters.horizon else 0
            rates = [] if counters.lifetime < start else [model.exploration.rate]
            if schedule is not None:
                rates += [schedule(start, max(counters.horizon, 1)), schedule.ends()[1]]
            self.values["exploration"] = 0.0 if off else max(rates, default=1.0)

    def read_replay(self) -> None:
        capacity, counters = self.model.arguments.get("buffer_size"), self.model.counters
        if capacity is not None and capacity < self.steps:
            self.values["replay_rows"] = float(capacity)
            if self.length:
                self.values["replay_episodes"] = capacity / self.length
        config = getattr(self.model, "replay_config", None)
        if config is not None and counters.n_updates:
            steps = 1 if config.sequences is None else config.sequences.batch_T
            begun = max(counters.lifetime - config.schedule.learning_starts, 1)
            self.values["replay_ratio"] = counters.n_updates * config.batch_size * steps / begun
        sampler = getattr(self.experience, "sampler", None)
        if sampler is None or not counters.lifetime:
            return
        self.values["replay_age"] = counters.n_updates * min(len(self.experience.ring) / counters.lifetime, 1.0)
        tree = getattr(sampler, "tree", None)
        if tree is not None and sampler.settings.alpha > 0.0:
            p = tree.leaves[tree.leaves > 0]
            if len(p):
                self.values["priority_share"] = float(p.sum() ** 2 / (len(p) * p.square().sum()))

    # -- rows

    def read_sample(self, sample: Sample) -> None:
        if getattr(getattr(self.model, "replay_config", None), "transform", IDENTITY) == IDENTITY:
            self.values["reward_scale"] = float(abs(sample.rewards).max())
        if self.model.counters.n_updates >= EARLY:
            self.values["rewarded_steps"] = float((sample.rewards != 0).sum())
        if sample.masks is not None:
            counts = sample.masks.sum(-1)
            self.values["legal_actions"] = float(counts.mean())
            never = getattr(actions_of(self.model.action_space), "legal", True) & ~sample.masks.any(0)
            self.values["never_legal"] = float(never.sum())
        obs, mask = self._inputs(sample)
        inputs = inputs_of(self.model, self.policy, sample)
        self.values["observation_scale"] = input_size(inputs)
        if len(inputs[0]) >= STATES and not self.is_played:  # greedy episodes may stay in one place
            self.values["observation_spread"] = max(float(x.std(0).max()) for x in inputs)
        with torch.no_grad():
            if isinstance(self.policy, StochasticPolicy):
                self.values["exploration"] = _spread(self.policy.distribution(obs, mask), self.policy.action_head)
            elif not self.policy.recurrent:
                self._read_values(self.policy.values(obs, mask), sample)

    def _inputs(self, sample: Sample) -> tuple[dict[str, Tensor], Tensor | None]:
        device = self.model.device
        obs = self.model.normalizer.observations({key: value.to(device) for key, value in sample.obs.items()})
        return obs, None if sample.mask is None else sample.mask.to(device)

    def _read_values(self, q: Tensor, sample: Sample) -> None:
        best = q.topk(2, -1).values if q.shape[-1] > 1 else q
        gap, comparable = best[..., 0] - best[..., -1], best[..., -1] > FORBIDDEN
        if comparable.any():
            self.values["action_gap"] = float(gap[comparable].mean())
            clear = comparable & (gap > ALIKE * best[..., 0].abs().mean())
            self.distinct = clear.reshape(len(q), -1).any(1)
        soft = getattr(getattr(self.model.learner.objective, "bootstrap", None), "munchausen", None) is not None
        known = torch.from_numpy(sample.returns).to(q.device)
        is_known = known.isfinite()
        if soft or not (is_known & (known != 0)).any():  # without rewards there is no scale to compare with
            return
        returns, value = known[is_known], best[..., 0].reshape(len(q), -1).mean(1)[is_known].mean()
        spread = max(float(returns.max() - returns.min()), float(returns.abs().max()), 1e-6)
        most = float(returns.max())
        if self.model.counters.n_updates < EARLY:
            most = max(most, 0.0)  # values begin around 0, which is above all returns where rewards are negative
        self.values["overestimation"] = (float(value) - most) / spread

    # -- networks

    def read_networks(self) -> None:
        model, batch = self.model, None
        epsilon = relative_epsilon(model.learner.optimizer)
        if epsilon is not None:
            self.values["adam_epsilon"] = epsilon
        self.values["non_finite"] = float(sum(int((~p.isfinite()).sum()) for p in self.parameters.values()))
        if self.experience is not None and self.experience.ring.cursor.any():
            batch = training_batch(self.experience)
        with watched(self.online) as outputs:
            if batch is None:
                self._act()
            else:
                batch = model.normalizer.batch(batch.to(model.device))
                loss, extras = model.learner.evaluate(self.online, self.target, batch)
        with watched(self.online) as acting:
            before = self._act()
        shares = {name: dormant_share(output) for name, output in {**outputs, **acting}.items()}
        if shares:
            worst = max(shares, key=lambda name: shares[name])
            self.values["dormant_units"], self.details["dormant_units"] = shares[worst], f"in {worst}"
        if before is not None and model.counters.n_updates >= EARLY:
            self._count_actions(before)
        # at the start of an episode, where `_act` has a recurrent policy, all states are alike
        hidden = list((outputs if self.policy.recurrent and batch is not None else acting).values())
        features = hidden[-1].flatten(1) if hidden else torch.zeros(1, 1)
        if features.shape[1] > 1 and bool(features.isfinite().all()):
            self.values["effective_rank"] = float(effective_rank(features))
        frozen = {name for name, p in self.online.named_parameters() if not p.requires_grad} | self._unchanged()
        if batch is not None:
            trained = {name: p for name, p in self.online.named_parameters() if p.requires_grad}
            found = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
            gradients = dict(zip(trained, found, strict=True))
            if not self._is_dead():
                frozen |= {name for name, gradient in gradients.items() if self._learns(name) and not gradient.any()}
            self._read_update(batch, gradients, extras, before)
        self.values["frozen_layers"] = float(len(frozen))
        if frozen:
            self.details["frozen_layers"] = ", ".join(sorted(frozen)[:4]) + ", ..." * (len(frozen) > 4)

    def _count_actions(self, actions: Tensor) -> None:
        if len(actions) >= STATES and not actions.is_floating_point() and not self.policy.recurrent:
            self.values["greedy_actions"] = float(len(actions.reshape(len(actions), -1).unique(dim=0)))  # type: ignore[no-untyped-call]

    def _read_update(
        self, batch: Batch, gradients: dict[str, Tensor], extras: Mapping[str, Tensor], before: Tensor | None
    ) -> None:
        """Reads what one update changes, on the copy."""
        learner = self.model.learner
        self.values["gradient_norm"] = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients.values()))
        self.values["non_finite"] += sum(int((~gradient.isfinite()).sum()) for gradient in gradients.values())
        found = self.sample is not None and self.sample.rewards.any()  # or returns are what the critic makes up
        if found and not self.model.keeps_replay and self.model.has_critic and "value" in (batch.extra or {}):
            self.values["explained_variance"] = bounded_explained_variance(batch)
        make_step(learner, self.online, gradients)
        after = self._act()
        if self.sample is not None and before is not None and after is not None:
            head, count = getattr(self.policy, "action_head", None), len(before)
            width = head.high - head.low if before.is_floating_point() and head is not None else None
            changed = changed_actions(before.reshape(count, -1), after.reshape(count, -1), width)
            changed = changed if self.distinct is None else changed & self.distinct
            self.values["policy_churn"] = float(changed[different_states(self.sample.obs)].float().mean())
        if "priority" in extras:
            _, extras_after = learner.evaluate(self.online, self.target, batch)
            error, error_after = float(extras["priority"].mean()), float(extras_after["priority"].mean())
            self.values["td_error"] = error
            self.values["td_error_tail"] = float(extras["priority"].max()) / max(error, 1e-12)
            self.values["td_error_growth"] = error_after / max(error, 1e-12)

    @torch.no_grad()
    def _act(self) -> Tensor | None:
        """Returns the greedy actions of the sample `[S, ...]`."""
        if self.sample is None:
            return None
        actions: Tensor = self.policy.greedy(*self._inputs(self.sample))
        return actions

    def _learns(self, name: str) -> bool:
        """Returns True for weights that the objective trains; biases and the tower of a value that is not learned are not."""
        return self.parameters[name].dim() > 1 and (getattr(self.model, "has_critic", True) or "value" not in name)

    def _is_dead(self) -> bool:
        """Returns True if a dead layer lets no gradient pass, or observations of zeros give none, which is no other fault."""
        return self.values.get("dormant_units", 0.0) == 1.0 or self.values.get("observation_scale", 1.0) == 0.0

    def _unchanged(self) -> set[str]:
        """Returns the weights that no update has changed since the last look, while others changed."""
        if self._is_dead() or self.since is None or self.since.n_updates >= self.model.counters.n_updates:
            return set()
        before = self.since.parameters
        same = {name for name, p in self.parameters.items() if name in before and torch.equal(p, before[name])}
        return {name for name in same if self._learns(name)} if len(same) < len(self.parameters) else set()


def _spread(distribution: Any, head: Any) -> float:
    """Returns the mean entropy as a share of that of the uniform distribution, or a deviation as a share of half the bounds."""
    if isinstance(distribution, Categorical):
        logp = distribution.logp
        legal = (logp > FORBIDDEN_LOG).sum(-1)
        entropy = -(logp.exp() * logp).sum(-1)[legal > 1] / legal[legal > 1].log()
        return float(entropy.mean()) if len(entropy) else 1.0
    half = 1.0 if isinstance(distribution, SquashedGaussian) else (head.high - head.low) / 2.0
    return float((distribution.log_std.exp() / half).mean())


def relative_epsilon(optimizer: torch.optim.Optimizer) -> float | None:
    """Returns Adam's epsilon, divided by the median root mean square of the gradients by its moments; weights without a
    gradient so far do not count. None where there are no such moments."""
    sizes = []
    for group in optimizer.param_groups:
        for state in (optimizer.state.get(p, {}) for p in group["params"]):
            if "exp_avg_sq" in state:
                bias = 1.0 - group["betas"][1] ** float(state["step"])
                sizes.append((state["exp_avg_sq"][state["exp_avg_sq"] > 0] / bias).sqrt())
    size = torch.cat(sizes) if sizes else torch.empty(0)
    return float(optimizer.param_groups[0]["eps"] / size.median()) if len(size) else None


def effective_rank(features: Tensor) -> int:
    """Returns the number of singular values of `[N, H]` that make up `RANK` of their sum; 0 if all are 0."""
    values = torch.linalg.svdvals(features.double())
    if not values[0] > 0:
        return 0
    return int((values.cumsum(0) < RANK * values.sum()).sum()) + 1


@torch.no_grad()
def make_step(learner: Any, online: nn.Module, gradients: Mapping[str, Tensor]) -> None:
    """Makes an optimizer step on a copy of the online network, by a copy of the optimizer.

    Args:
        learner: the learner; not changed.
        online: the copy.
        gradients: by name, of the parameters that learn.
    """
    names, parameters = zip(*online.named_parameters(), strict=True)
    flat = flat_copy(gradients.get(name, torch.zeros_like(p)) for name, p in zip(names, parameters, strict=True))
    learner.clip(flat)
    copies: dict[int, Any] = {}
    optimizer = copy.deepcopy(learner.optimizer, copies)
    masters = [copies[id(master)] for master in learner.optimizer_step.masters]
    for master, grad in zip(masters, flat_views(flat, masters), strict=True):
        master.grad = grad if master.requires_grad else None
    optimizer.step()
    for parameter, value in zip(parameters, flat_views(flat_copy(masters), parameters), strict=True):
        parameter.copy_(value)


def bounded_explained_variance(batch: Batch) -> float:
    """Returns 1 - Var(return - value) / Var(return) of the samples of a rollout; the variance counts as 0.1 % of the mean square
    at least, since returns that are all the same need no explanation."""
    assert batch.extra is not None
    valid = batch.weight > 0
    returns, values = batch.return_[valid], batch.extra["value"][valid]
    variance = returns.var(correction=0).clamp_min(1e-3 * returns.square().mean()).clamp_min(1e-12)
    return float(1.0 - (returns - values).var(correction=0) / variance)


def different_states(obs: Mapping[str, Tensor]) -> Tensor:
    """Returns the index of one row for each different observation."""
    rows = zip(*(value.reshape(len(value), -1).cpu().numpy() for value in obs.values()), strict=True)
    return torch.tensor(list({tuple(part.tobytes() for part in row): index for index, row in enumerate(rows)}.values()))


def changed_actions(before: Tensor, after: Tensor, width: Tensor | None) -> Tensor:
    """Returns `[N]` bool, True for states whose action changed.

    Args:
        before, after: `[N, D]` choices or numbers.
        width: `[D]`, width of the bounds of a Box; None for choices.
    """
    changed = before != after if width is None else (before - after).abs() > MOVED * width
    return changed.any(1)
