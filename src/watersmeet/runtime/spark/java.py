"""Is there a Java that Spark can run on? If not: one sentence with the command that installs it.

Imports the standard library only, so that `python java.py` can ask before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_INSTALLERS = {
    "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-17-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "brew": "brew install openjdk@17",
}


def java_problem() -> str | None:
    """What is wrong with this machine's Java, with the remedy; None if Spark can run on it."""
    program = _program()
    if program is None:
        return f"watersmeet needs Java {OLDEST}, and there is none here; install it with: {install_command()}"
    version = ask_version(program)
    if version is None:
        return f"watersmeet needs Java {OLDEST}, and {program} does not start; install it with: {install_command()}"
    if version < OLDEST:
        return f"watersmeet needs Java {OLDEST}, and {program} is Java {version}; install it with: {install_command()}"
    return None


def find_version() -> int | None:
    """The major version of the Java that Spark would start; None if there is none that starts."""
    program = _program()
    return None if program is None else ask_version(program)


def ask_version(program: str) -> int | None:
    """What a program says its major version is."""
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    return major(said.stderr + said.stdout)


def major(text: str) -> int | None:
    """The major version in what `java -version` prints.

    >>> major('openjdk version "17.0.15" 2025-04-15'), major('java version "1.8.0_392"'), major("not found")
    (17, 8, None)
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def install_command() -> str:
    """The one command that installs Java on this machine."""
    for name, command in _INSTALLERS.items():
        if shutil.which(name):
            return command
    return _INSTALLERS["apt-get"]


def _program() -> str | None:
    """The java that Spark would start: JAVA_HOME's, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        return str(program) if program.exists() else None
    return shutil.which("java")


if __name__ == "__main__":
    sys.exit(java_problem())
