"""Ends with 0 if the URL of the command line answers 200 within four seconds: a HEALTHCHECK for
images that have no curl."""

from __future__ import annotations

import sys
import urllib.request


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=4) as response:
            return bool(response.status == 200)
    except OSError:  # no answer, or one that is an error
        return False


if __name__ == "__main__":
    sys.exit(not healthy(sys.argv[1]))
