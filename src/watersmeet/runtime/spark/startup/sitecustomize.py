"""What Python imports first in the workers of `dataframe()`: this folder is on their PYTHONPATH, see `watersmeet.runtime.spark.diary`.

Invariant: only the worker that writes the diary is touched, and a sitecustomize that this one hides runs as it would have.
"""

import sys
from contextlib import suppress
from os.path import dirname, realpath


def drop_diary() -> None:
    """Drop the diary where it is written; who has no watersmeet is told so by the probe."""
    if any(part.endswith("transform_with_state_driver_worker") for part in sys.orig_argv):
        with suppress(ImportError):
            from watersmeet.runtime.spark import diary

            diary.drop_diary()


def import_hidden() -> None:
    """Import the sitecustomize that comes next on the path, if there is one."""
    here = dirname(realpath(__file__))
    sys.path[:] = [folder for folder in sys.path if realpath(folder) != here]
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
        sys.modules[__name__] = own


if __name__ == "sitecustomize":
    drop_diary()
    import_hidden()
