# Runs one Jupyter kernel for the server. Descriptor 3 is a socket to it: a line
# says that the kernel listens, or why there is none; its end says that the
# server is gone, and the kernel goes too.
import codecs, errno, os, select, signal, sys, threading

LINK = 3
OWN = os.getpid()
DIRECTORY = os.path.dirname(sys.argv[1])  # for the connection file and the sockets alone
os.set_inheritable(LINK, False)
if sys.path and sys.path[0] == "":
    del sys.path[0]  # a random.py in the working directory must not break the start


def leave_with_server():
    try:
        while os.read(LINK, 1):
            pass
    except ConnectionError:  # the server did not read the last line
        pass
    try:
        for _ in range(100):  # the main thread may make sockets meanwhile
            for name in os.listdir(DIRECTORY):
                os.unlink(os.path.join(DIRECTORY, name))
            try:
                return os.rmdir(DIRECTORY)
            except OSError as e:
                if e.errno != errno.ENOTEMPTY:
                    raise
    finally:
        os.killpg(0, signal.SIGKILL)


# From the start: the main thread of a kernel that fails to start waits for others.
threading.Thread(target=leave_with_server, daemon=True).start()


def say(word, detail):
    os.write(LINK, (word + " " + " ".join(detail.split())[:500] + "\n").encode("utf-8", "surrogateescape"))


try:
    from ipykernel.iostream import OutStream
    from ipykernel.kernelapp import IPKernelApp
except Exception as e:
    say("absent", "%s: %s" % (type(e).__name__, e))
    sys.exit(1)


class Pipe:
    """What processes write to descriptor 1 or 2. ipykernel's own reader ends at
    the first byte that is no UTF-8, and at a character in two parts, so that
    writers wait for ever; and what it has not read when a cell ends is lost."""

    def __init__(self, stream):
        self.stream, self.lock = stream, threading.RLock()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, wait):
        """Moves what was written into the stream, and may wait for it; false
        where nothing comes any more."""
        try:
            if wait:
                select.select([self.stream._fid], [], [])
            with self.lock:
                if not select.select([self.stream._fid], [], [], 0)[0]:
                    return True
                data = os.read(self.stream._fid, 1 << 20)  # more than it holds
                put(self.stream, self.decoder.decode(data))
                return bool(data)
        except (AttributeError, OSError, ValueError):  # the cell closed it, the kernel ends, or is of another make
            return False


def follow(stream):
    if not hasattr(stream, "_fid"):  # an ipykernel that keeps it elsewhere
        return watch(stream)
    stream.pipe = pipe = Pipe(stream)
    while stream._should_watch and pipe.take(wait=True):
        pass


def catch_up(stream):
    pipe = getattr(stream, "pipe", None)
    if pipe and os.getpid() == OWN:  # a child has no part in it
        pipe.take(wait=False)


def put(stream, text):
    written = write(stream, text)
    stream.unsent = True
    return written


def write_after(stream, text):
    catch_up(stream)
    return put(stream, text)


def flush_all(stream):
    catch_up(stream)
    if not getattr(stream, "unsent", True):  # it costs two rounds through another thread, six times in a cell
        return
    stream.unsent = False
    flush(stream)
    wait_until_sent(stream)


def wait_until_sent(stream):
    """ipykernel's flush returns when its thread has queued the text for itself:
    a cell that never lets go of the interpreter afterwards would keep it there."""
    thread = stream.pub_thread
    if thread and threading.current_thread() is not thread.thread:
        sent = threading.Event()
        thread.schedule(sent.set)
        sent.wait(stream.flush_timeout)


if hasattr(OutStream, "_watch_pipe_fd"):
    watch, write, flush = OutStream._watch_pipe_fd, OutStream.write, OutStream.flush
    OutStream._watch_pipe_fd, OutStream.write, OutStream.flush = follow, write_after, flush_all


class Kernel(IPKernelApp):
    def init_iopub(self, context):
        context.sndhwm = 0  # beyond its limit a publisher drops messages
        super().init_iopub(context)


def leave_child():
    if os.getpid() != OWN:  # it would wait for cells that never come, at full speed
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)


try:
    kernel = Kernel.instance()
    kernel.initialize(["-f", sys.argv[1]])
    kernel.kernel._execute_sleep = 0  # for clients that do not wait for the idle status
    kernel.shell.events.register("post_execute", leave_child)
except Exception as e:
    say("broken", "%s: %s" % (type(e).__name__, e))
    raise
say("ready", sys.executable)
kernel.start()
