"""Names of Stable-Baselines3 that a model does not have, and what replaces each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

UNUSED_KEYWORDS = {
    "optimize_memory_usage": "each frame is stored once anyway",
    "replay_buffer_class": "n_steps, frame stacks and Dict observations combine without it",
    "replay_buffer_kwargs": "buffer_size, buffer_device and buffer_path replace it",
    "action_noise": "the spread of the policy explores",
    "use_sde_at_warmup": "state-dependent exploration is not built",
    "use_sde": "state-dependent exploration is not built; the spread of a Gaussian policy is learned",
    "sde_sample_freq": "state-dependent exploration is not built",
    "rollout_buffer_class": "any observation, frame stack, mask and action fits into the one rollout",
    "rollout_buffer_kwargs": "n_steps, gamma and gae_lambda replace it",
    "_init_setup_model": "a model is always whole",
    "force_reset": "a stream that begins again always begins with a reset",
    "print_system_info": "`sb-dqn info FILE` prints what a file says of itself",
}
"""Constructor keywords without a meaning here, with the reason."""

HER = (
    "hindsight experience replay is a setting of every replay buffer",
    "Use hindsight=dict(n_sampled_goal=4, goal_selection_strategy='future')",
)
"""Reason and fix for the arguments of hindsight experience replay."""
HER_KEYWORDS = {"n_sampled_goal", "goal_selection_strategy", "copy_info_dict"}
"""Keys of `replay_buffer_kwargs` that only `HerReplayBuffer` has."""

RENAMED = {
    "lr_schedule": "rate_schedule, a function of env step and horizon; load(path, learning_rate=...) takes another",
    "exploration_schedule": "exploration_rate, its value now",
    "q_net": "policy.q_net",
    "q_net_target": "policy.q_net_target",
    "rollout_buffer": "rollout, where there is one",
    "train": "learn",
    "collect_rollouts": "learn",
    "_episode_num": "statistics.num_episodes, which no learn resets",
}
"""Attributes with another name here."""

REPLACED = {
    "_last_obs": "There is none: read self.locals['new_obs'] in a callback",
    "_last_episode_starts": "There is none: read self.locals['dones'] in a callback",
    "_vec_normalize_env": "Call get_vec_normalize_env(); our own statistics are normalizer",
    "policy_class": "Read type(model.policy)",
    "policy_aliases": "There are none: see sb_dqn.policies",
    "start_time": "There is none: the log has time/time_elapsed",
    "critic": "Read policy.nets.critics, of SAC",
    "critic_target": "Read policy.critics_target, of SAC",
    "log_ent_coef": "Read policy.nets.log_alpha.value, of SAC",
    "ent_coef_optimizer": "There is one optimizer for all: learner.optimizer",
    "ent_coef_tensor": "Read policy.nets.log_alpha.value.exp(), of SAC",
    "use_sde": "State-dependent exploration is not built",
    "action_noise": "Exploration is built in: see exploration_rate, or the spread of the policy",
}
"""Attributes without one counterpart, with the way to the same information."""

HINTS = {name: f"Read {place}" for name, place in RENAMED.items()} | REPLACED
"""Attribute to hint, for an AttributeError."""

SETTERS = {
    "env": "set_env(env)",
    "logger": "set_logger(logger)",
    "policy": "set_parameters(parameters)",
    "seed": "set_random_seed(seed)",
}
"""Attributes that are changed by a method."""

COMPUTED = {
    "exploration_rate": "since it follows the schedule. Set another by load(path, env=env, exploration=...)",
    "num_timesteps": "since it counts env steps. Call learn(..., reset_num_timesteps=True) to begin at 0",
}
"""Attributes that a model computes."""

NO_COPY = (
    "a model must be copied by saving and loading it, got {}: its parameters share one tensor and its updates are recorded. Call "
    "model.save(path) and {}.load(path, env=...), or copy model.policy to act only."
)


def wants_her(keyword: str, value: Any) -> bool:
    """Returns True for SB3's `HerReplayBuffer`, a subclass of it, its name, or its keywords."""
    if keyword == "replay_buffer_class":
        names = [base.__name__ for base in value.__mro__] if isinstance(value, type) else [str(value)]
        return "HerReplayBuffer" in names
    return keyword == "replay_buffer_kwargs" and isinstance(value, Mapping) and bool(HER_KEYWORDS & value.keys())


def assignment_error(cls: str, name: str, value: Any, arguments: Collection[str]) -> str:
    """Returns why `model.name = value` is refused, and the fix."""
    if name in SETTERS:
        return f"{name} of a model cannot be assigned. Call {SETTERS[name]}."
    if name in RENAMED:
        return f"{name} of a model cannot be assigned. Use {RENAMED[name]}."
    if name in COMPUTED:
        return f"{name} of a model cannot be assigned, {COMPUTED[name]}."
    if name not in arguments:
        return f"{name} of a model cannot be assigned, since it is read from its parts. Change the parts, or create another model."
    return (
        f"{name}={value!r} cannot be assigned: {cls} reads {name} once, in its constructor. Pass it there, or save the model and "
        f"continue with {cls}.load(path, env=env, {name}={value!r})."
    )
