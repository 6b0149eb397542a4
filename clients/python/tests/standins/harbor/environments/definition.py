"""Names of harbor.environments.definition."""

import re


def parse_dockerfile_workdir(dockerfile_path):
    found = re.findall(r"(?m)^WORKDIR\s+(.*)$", dockerfile_path.read_text()) if dockerfile_path.exists() else []
    return found[-1] if found else None
