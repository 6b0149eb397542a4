# Runs one Jupyter kernel for the server. Descriptor 3 is a socket to it: a line
# says that the kernel listens, or why there is none; its end says that the
# server is gone, and the kernel goes too.
import os, signal, sys, threading

LINK = 3
os.set_inheritable(LINK, False)
if sys.path and sys.path[0] == "":
    del sys.path[0]  # a random.py in the working directory must not break the start


try:  # when memory runs out this goes before the server does, as shells do
    with open("/proc/self/oom_score_adj", "r+") as score:
        own = int(score.read())
        score.write(str(min(1000, own + 300)))
except (OSError, ValueError):
    pass


def say(word, detail):
    os.write(LINK, (word + " " + " ".join(detail.split())[:500] + "\n").encode("utf-8", "surrogateescape"))


try:
    from ipykernel.kernelapp import IPKernelApp
except Exception as e:
    say("absent", "%s: %s" % (type(e).__name__, e))
    sys.exit(1)


class Kernel(IPKernelApp):
    def init_iopub(self, context):
        context.sndhwm = 0  # beyond its limit a publisher drops messages
        super().init_iopub(context)


def leave_with_server():
    while os.read(LINK, 1):
        pass
    os.killpg(0, signal.SIGKILL)


kernel = Kernel.instance()
kernel.initialize(["-f", sys.argv[1]])
say("ready", sys.executable)
threading.Thread(target=leave_with_server, daemon=True).start()
kernel.start()
