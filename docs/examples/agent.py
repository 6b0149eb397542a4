#!/usr/bin/env python3
"""Let a model work in a sandbox, with nothing but the standard library:
agent.py "write a greeter in Python and run it"."""
import http.client
import json
import os
import socket
import sys
import urllib.error
import urllib.request

env = os.environ.get


class Socket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(env("SANDBOX_URL")[len("unix://"):])


class Unix(urllib.request.HTTPHandler):
    def http_open(self, request):
        return self.do_open(Socket, request)


def call(url, key, body=None, handler=urllib.request.HTTPHandler):
    """Post body, or get where there is none, and return the JSON answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", "Authorization": "Bearer " + key})
    try:
        with urllib.request.build_opener(handler).open(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        sys.exit(f"{url}: {error}: {error.read().decode()}")
    except urllib.error.URLError as error:
        sys.exit(f"{url} cannot be reached: {error.reason}")


def sandbox(path, body=None):
    url = env("SANDBOX_URL") or sys.exit("SANDBOX_URL is not set")
    unix = url.startswith("unix://")
    return call(("http://sandbox" if unix else url) + path, env("SESSION_API_KEY", ""), body, Unix if unix else urllib.request.HTTPHandler)


tools = sandbox("/v1/tools?dialect=actiond")["tools"]
messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
while True:
    reply = call(env("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions", env("OPENAI_API_KEY", ""),
                 {"model": env("MODEL"), "messages": messages, "tools": tools})
    message = reply["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        sys.exit(print(message["content"]))
    for c in message["tool_calls"]:
        answer = sandbox("/v1/tools/call", {"dialect": "actiond", "name": c["function"]["name"], "arguments": c["function"]["arguments"],
                                            "tool_call_id": c["id"], "timeout": 600})
        messages.append({"role": "tool", "tool_call_id": c["id"], "content": answer["text"]})
