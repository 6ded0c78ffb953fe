# Virtual environment for all scripts: created if missing, updated if the pinned versions change. To be sourced.
#
#   ensure EXTRA[,EXTRA...]    installs sb_dqn with these extras for $python
#
# SB_DQN_VENV sets the folder (default: .venv). With `newest` set, each call installs the newest versions that setup.cfg allows,
# but the torch of constraints.txt, since others are large: SB_DQN_TORCH=torch is the newest, SB_DQN_TORCH=torch==2.15.0 a version.
# With `oldest` set, it installs the oldest ones that setup.cfg allows, but the torch of constraints.txt.

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv="${SB_DQN_VENV:-.venv}"
python="$venv/bin/python"

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "No Python 3.10 or later found on the PATH. Install one (https://www.python.org/downloads/) and run this script again."
}

install_extras() {
  local extras="$1" pip=("$python" -m pip install --quiet --disable-pip-version-check) torch
  shift
  if [ -z "${oldest:-}" ]; then
    "${pip[@]}" -e ".[$extras]" "$@"
  else # only uv looks for the oldest versions; old versions of gymnasium[box2d] are built with swig
    torch="$(grep '^torch==' constraints.txt)"
    "${pip[@]}" uv swig "$torch" &&
      PATH="$(cd "$venv/bin" && pwd):$PATH" "$python" -m uv pip install --quiet --python "$python" --resolution lowest-direct -e ".[$extras]" "$torch"
  fi
}

ensure() {
  local extras="$1" stamp="$venv/.sb_dqn_installed" pins have="" extra missing="" versions=(-c constraints.txt)
  pins="$(cat setup.cfg pyproject.toml constraints.txt | cksum | tr ' ' '-')"
  if [ ! -x "$python" ]; then
    local base
    base="$(find_python)"
    say "creating $venv with $("$base" --version)"
    "$base" -m venv "$venv" ||
      fail "python -m venv failed. On Debian and Ubuntu it requires: sudo apt-get install python3-venv"
    rm -f "$stamp"
  fi
  if [ -n "${newest:-}" ]; then
    rm -f "$stamp"
    versions=(--upgrade --upgrade-strategy eager "${SB_DQN_TORCH:-$(grep '^torch==' constraints.txt)}")
  fi
  if [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$pins" ]; then have="$(sed -n 2p "$stamp")"; fi
  for extra in ${extras//,/ }; do
    case ",$have," in
      *",$extra,"*) ;;
      *) missing="$missing,$extra" ;;
    esac
  done
  [ -z "$missing" ] && return
  extras="${have:+$have,}${missing#,}"
  say "installing sb_dqn[$extras] into $venv (torch is large: the first time takes a few minutes)"
  install_extras "$extras" "${versions[@]}" || fail "The installation failed. See the messages above."
  printf '%s\n%s\n' "$pins" "$extras" >"$stamp"
}
