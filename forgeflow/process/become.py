"""The program that becomes another user, or lowers its limits, and then the job's own program.

It is started by its path, as `python -I -S become.py ERRORS SPEC PROGRAM ARGUMENT...`, and imports nothing of
ForgeFlow, for each such run waits until it is there. SPEC is the descriptor of a JSON object:

- `user`: {uid, gid, groups}, or null to stay who we are
- `limits`: {name of a resource: value}, for both of its limits
- `workdir`: where to go, as the new user
- `environment`: that of the job's program; ours is empty, for what a job puts there, LD_PRELOAD say, would be heeded
  before we are somebody else

Whatever fails is written to the descriptor ERRORS, a sentence, and nothing is executed. It is closed by the exec, so
that the job cannot write there, and silence means that the job has begun as whom it should.
"""

import ctypes
import json
import os
import resource
import sys
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_REFUSED = 126

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY and value > hard and os.geteuid() != 0:
            raise ValueError(f"the limit of {name} is {value}, and the node may give no more than {hard}")
        # A second between the two: with both alike the kernel kills, and does not say by SIGXCPU why.
        more = int(name == "CPU" and value != hard)
        resource.setrlimit(number, (value, value + more))


def _switch(user: dict[str, Any]) -> None:
    """For good: all three ids, the groups, and no capability or setuid program to come back by."""
    uid, gid, groups = user["uid"], user["gid"], user["groups"]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    # One who was not root before keeps what he could do, unless he lets it go.
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if (os.getresuid(), os.getresgid(), set(os.getgroups())) != ((uid,) * 3, (gid,) * 3, set(groups)):
        raise PermissionError("the user was not switched as a whole")


def main() -> None:
    errors, spec, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(errors, False)
    step = "what it shall be could not be read: "
    try:
        with open(spec, "rb") as file:
            wanted = json.load(file)
        step = "its limits could not be set: "
        _set_limits(wanted["limits"])
        if wanted["user"]:
            step = "its user could not be switched: "
            _switch(wanted["user"])
        step = f"{wanted['workdir']}: "
        os.chdir(wanted["workdir"])
        step = f"{program[0]}: "
        os.execvpe(program[0], program, wanted["environment"])
    except BaseException as error:  # noqa: BLE001 - whatever it is, the job must not begin
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(errors, f"{step}{reason}".encode("utf-8", "backslashreplace"))
    os._exit(_REFUSED)


if __name__ == "__main__":
    main()
