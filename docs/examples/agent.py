#!/usr/bin/env python3
"""Let a model work in a sandbox, with nothing but the standard library:
agent.py "write a greeter in Python and run it"."""
import json
import os
import sys
import urllib.error
import urllib.request

env = os.environ.get


def call(url, header, key, body=None):
    """Post body, or get where there is none, and return the JSON answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", header: key})
    try:
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: {error}: {error.read().decode()}")
    except urllib.error.URLError as error:
        sys.exit(f"{url} cannot be reached: {error.reason}")


def sandbox(path, body=None):
    url = env("SANDBOX_URL") or sys.exit("SANDBOX_URL is not set")
    return call(url + path, "X-Session-API-Key", env("SESSION_API_KEY", ""), body)


tools = sandbox("/v1/tools")["tools"]
messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
while True:
    reply = call(env("OPENAI_BASE_URL") + "/chat/completions", "Authorization", "Bearer " + env("OPENAI_API_KEY", ""),
                 {"model": env("MODEL"), "messages": messages, "tools": tools})
    message = reply["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        sys.exit(print(message["content"]))
    for c in message["tool_calls"]:
        answer = sandbox("/v1/tools/call", {"name": c["function"]["name"], "arguments": c["function"]["arguments"],
                                            "tool_call_id": c["id"], "timeout": 600})
        messages.append({"role": "tool", "tool_call_id": c["id"], "content": answer["text"]})
