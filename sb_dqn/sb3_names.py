"""Names of Stable-Baselines3 that have no counterpart of the same name here, and what replaces each."""

from __future__ import annotations

from collections.abc import Collection, Mapping

UNUSED_KEYWORDS = {
    "optimize_memory_usage": "each frame is stored once anyway",
    "replay_buffer_class": "n_steps, frame stacks and Dict observations combine without it",
    "replay_buffer_kwargs": "buffer_size, buffer_device and buffer_path replace it",
    "action_noise": "only SAC has noise on its actions",
    "use_sde_at_warmup": "only SAC has it",
    "use_sde": "only A2C, PPO and SAC have state-dependent exploration",
    "sde_sample_freq": "only A2C, PPO and SAC have state-dependent exploration",
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
"""Attributes of a model with another name here."""

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
}
"""Attributes of a model without one counterpart, with the way to the same information."""

MODEL_ATTRIBUTES = {name: f"Read {place}" for name, place in RENAMED.items()} | REPLACED
"""Attributes of a model, for an AttributeError."""

ACTOR_CRITIC_NET = (
    "Call model.policy.net({'obs': tensor}) of an actor-critic: its .value, and a distribution .policy with log_prob and "
    "entropy"
)
POLICY_ATTRIBUTES = {
    "predict": "Call model.predict",
    "obs_to_tensor": "Networks take a flat dict of tensors [N, *shape], {'obs': tensor} for a single key",
    "optimizer": "Read model.learner.optimizer",
    "device": "Read model.device",
    "set_training_mode": "There is none: networks stay in eval mode outside updates, and noise is an argument of each call",
    "features_extractor": "Read model.policy.q_net.features of a Q-agent, model.policy.net.features of an actor-critic",
    "features_dim": "Read model.policy.q_net.features.features_dim, for example",
    "extract_features": "Call model.policy.q_net.features(obs), for example",
    "lr_schedule": "Read model.rate_schedule",
    "save": "Call model.save",
    "load": "Call the load of the algorithm, DQN.load for example",
    "q_net": "This policy has no action values: see policy.net, or policy.nets of SAC",
    "q_net_target": "There is no second network: with target='shared' head 0 of policy.q_net.head is the target; PQN has none",
    "predict_values": ACTOR_CRITIC_NET,
    "evaluate_actions": ACTOR_CRITIC_NET,
    "get_distribution": "Call policy.distribution(obs, mask) of a stochastic policy",
    "mlp_extractor": "Read policy.net",
    "action_net": "Read policy.net.action_head",
    "value_net": "Read policy.net",
    "scale_action": "There is none: predict returns actions of a Box in the units of the space",
    "unscale_action": "There is none: predict returns actions of a Box in the units of the space",
}
"""Attributes of policies."""

READ_COLUMN = "Read replay.ring.{}, indexed by slot * num_lanes + lane".format
REPLAY_ATTRIBUTES = {
    "pos": "Read replay.ring.cursor, the number of rows that have arrived in each lane",
    "full": "Compare replay.size() with replay.ring.rows * replay.ring.num_lanes",
    "observations": "Read replay.ring.obs, a dict of columns; a plain observation has the key 'obs'",
    "next_observations": "Read replay.ring.obs: the next observation is that of the lane's next row",
    "actions": READ_COLUMN("action"),
    "rewards": READ_COLUMN("reward"),
    "dones": "Read replay.ring.last, True where an episode ends",
    "timeouts": "Read replay.ring.last & ~replay.ring.terminal",
    "add": "Call replay.extend(rows) with the rows of a stream",
    "reset": "Create a new model: a replay buffer cannot be emptied",
    "buffer_size": "Read replay.ring.rows * replay.ring.num_lanes",
    "n_envs": "Read replay.ring.num_lanes",
    "device": "Read replay.ring.device",
    "to_torch": "Read replay.ring.columns, which are tensors",
}
"""Attributes of replay buffers."""

WRAPPERS = {
    "VecNormalize": "normalize_observations=True, normalize_rewards=True of the model do what VecNormalize does",
    "VecFrameStack": "make_vec_env(..., wrapper_class=gymnasium.wrappers.FrameStackObservation, wrapper_kwargs={'stack_size': 4}) "
    "does what VecFrameStack does",
    "VecMonitor": "make_vec_env(..., monitor_dir=...) does what VecMonitor does; the model counts episodes itself",
    "VecTransposeImage": "VecTransposeImage is not needed",
}
"""Wrappers of a `VecEnv`, by class name."""
ALREADY_STACKED = "VecFrameStack is not needed, the model stacks {} frames of this environment"

SETTERS = {
    "env": "set_env(env)",
    "logger": "set_logger(logger)",
    "policy": "set_parameters(parameters)",
    "seed": "set_random_seed(seed)",
}
"""Attributes of a model that are changed by a method."""

COMPUTED = {
    "exploration_rate": "since it follows the schedule. Set another by load(path, env=env, exploration=...)",
    "num_timesteps": "since it counts env steps. Call learn(..., reset_num_timesteps=True) to begin at 0",
}
"""Attributes that a model computes."""

NO_COPY = (
    "a model must be copied by saving and loading it, got {}: its parameters share one tensor and its updates are traced. Call "
    "model.save(path) and {}.load(path, env=...), or copy model.policy to act only."
)


def wants_her(keyword: str, value: object) -> bool:
    """Returns True for SB3's `HerReplayBuffer`, a subclass of it, its name, or its keywords."""
    if keyword == "replay_buffer_class":
        names = [base.__name__ for base in value.__mro__] if isinstance(value, type) else [str(value)]
        return "HerReplayBuffer" in names
    return keyword == "replay_buffer_kwargs" and isinstance(value, Mapping) and bool(HER_KEYWORDS & value.keys())


def assignment_error(
    cls: str, name: str, value: object, arguments: Collection[str], replaced: Mapping[str, str]
) -> str:
    """Returns why `model.name = value` is refused, and the fix."""
    if name in SETTERS:
        return f"{name} of a model cannot be assigned. Call {SETTERS[name]}."
    if name in RENAMED:
        return f"{name} of a model cannot be assigned. Use {RENAMED[name]}."
    if name in COMPUTED:
        return f"{name} of a model cannot be assigned, {COMPUTED[name]}."
    if name in replaced:
        return f"{name} must be unset for {cls}, got {value!r}. {replaced[name]}."
    if name not in arguments:
        return f"{name} of a model cannot be assigned, since it is read from its parts. Change the parts, or create another model."
    return (
        f"{name}={value!r} cannot be assigned: {cls} reads {name} once, in its constructor. Pass it there, or save the model and "
        f"continue with {cls}.load(path, env=env, {name}={value!r})."
    )
