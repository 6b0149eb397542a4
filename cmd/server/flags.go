package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/llm"
	"github.com/actiond/actiond/internal/httpserver"
)

// options are the values of the command line and the environment.
type options struct {
	addr        string
	workingDir  string
	username    string // empty: the user who runs this program
	userID      int
	plugins     []string // nil: not given
	browser     bool
	evalEnv     string
	key         string
	keyInEnv    bool // every process of the same user can read it there
	claim       bool
	claimHash   []byte        // without it any client may claim
	startFIFO   string        // empty: start at once
	ttl, idle   time.Duration // 0: none
	memoryFD    int           // 0: none
	softTimeout time.Duration
	stateDir    string
	maxSessions int
	allowRoot   bool
	devices     bool
	changes     string // api.ChangesUndo, api.ChangesFacts or api.ChangesOff; empty: undo if the workspace is small
	storeBytes  int64  // 0: a default
	track       string // empty: workingDir
	dirProblem  string // why workingDir is not the one that was given; set by prepare
	journal     journal.Config
	draft       llm.Config
	model       *llm.Model // nil: drafts are merged by rules
	logLevel    slog.Level
	logJSON     bool
	groupID     int // of the working directory
	selfName    string
}

// usageError is a command line or a variable that cannot be understood.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// referenceModule is how the OpenHands runtimes start their own server. The
// words before it on the command line lead to a Python interpreter.
const referenceModule = "openhands.runtime.action_execution_server"

const defaultAddr = "127.0.0.1:8000"

const help = `Usage: server [PORT] [flags]
       server init [PORT] [flags]
       server egress DIR
       server egress --listen ADDRESS [--metrics-listen ADDRESS] [--never IP,...]
       server lend FILE [DIR...]
       server lent FILE
       server version | --version

Runs the actions of an agent in this sandbox. Without a key, a client that reaches
the address can run commands.

  PORT                      listen on 0.0.0.0:PORT
  --addr HOST:PORT          listen there (default ` + defaultAddr + `)
  --addr unix:PATH          listen on a Unix socket
  --host HOST --port PORT   the same as --addr HOST:PORT; without the one, its
                            default
  --working-dir DIR         where shells start; made if it is not there
                            (default: the current directory)
  --username NAME           run commands and open files as this user; needs root
                            (default: the user who runs the server)
  --user-id N               the user's id if the account has to be made (default 1000)
  --allow-root              let clients of /v1/actions run programs as root and
                            other users ("user" of exec); needs root and a key
  --device-groups           let the user open the devices of this container: put it
                            into the groups, but root's, of those in /dev that are
                            for a group alone
  --session-key-file FILE   ask clients for the key in this file
  --claim                   have no key: the first call to /v1/claim brings it
  --claim-hash SHA256       take a claim or a new deadline only with the ticket of
                            that hash
  --start-fifo FILE         do nothing before a byte can be read from this FIFO;
                            end where it has no writer any more
  --memory-fd N             given by init: keep there what a server needs that is
                            started again after a crash
  --ttl DURATION            end after so long (default: never); a claim brings
                            its own limits
  --idle-limit DURATION     end after so long without work (default: never)
  --max-sessions N          keep at most so many shells (default 512)
  --state-dir DIR           keep the undo history, the journal of actions and what
                            takes changes back there, over restarts (default: all
                            but the first, below /var/lib/actiond or
                            $XDG_STATE_HOME/actiond)
  --changes undo|facts|off  undo: find out which files of the working directory each
                            action changes, and keep contents, so that changes can
                            be taken back; facts: keep none (default: undo up to
                            256 MiB and 50,000 names, else facts)
  --changes-bytes N         keep so many bytes of contents, compressed (default: a
                            tenth of the free disk, at most 2147483648; of memory
                            file systems a quarter)
  --track DIR               find out about the files of this directory instead
  --journal-sync            make the journal survive a loss of power (fsync)
  --journal-text on|off     off: keep commands, output and results of actions in
                            memory only (default on)
  --journal-bytes N         keep so many bytes of actions (default 268435456)
  --journal-actions N       keep so many actions (default 10000)
  --journal-age DURATION    forget actions so long after their end (default 168h)
  --journal-output N        keep so many bytes of the output of one action, its
                            head and its tail (default 16777216)
  --draft-model-url URL     let a model behind this OpenAI-compatible endpoint
                            (https://host/v1) merge drafts; it gets the lines
  --draft-model NAME        its name there
  --draft-model-key-file FILE  the key that it asks for
  --soft-timeout DURATION   answer after this much silence (default 10s)
  --plugins NAME...         agent_skills, jupyter, vscode; without jupyter in the
                            list run_ipython is off (default: it is on)
  --[no-]enable-browser     browse and browse_interactive are on by default;
                            pages need Chromium, or are fetched without it
  --browsergym-eval-env E   accepted, needs the browser, and changes nothing
  --help                    show this text

With init it is PID 1 of a container: it starts the server, passes signals on to
it, reaps orphans, starts a server again that crashed, up to 5 times in 10
minutes, and otherwise ends with the server's status. With init --until-eof it is a
child of any program: it ends when standard input does, and all processes that the
sandbox started end with it. With lend it copies
itself to FILE, makes each DIR its user's alone (mode 0700), and goes on until it
is told to end; lent returns when FILE is there.

Variables:
  SESSION_API_KEY            the key, where there is no --session-key-file;
                             OH_SESSION_API_KEYS_0 is another name for it
  OH_EXECUTION_ONLY          true: the default of --working-dir is /workspace
  NO_CHANGE_TIMEOUT_SECONDS  the soft timeout in whole seconds (default 10)
  SANDBOX_GROUP_ID           group of a working directory that is handed over
  RUNTIME_MAX_MEMORY_GB      accepted if it is a number; the container limits memory
  LOG_LEVEL, LOG_JSON, DEBUG logging: debug, info, warn, error; 1 for JSON; 1 for debug
`

// parse understands the command line and the environment. Flags win over
// variables. It returns flag.ErrHelp after it has printed the help.
func parse(args, env []string, stderr io.Writer) (*options, error) {
	if i := slices.Index(args, referenceModule); i >= 0 {
		args = args[i+1:]
	}
	opts := &options{userID: 1000, browser: true, softTimeout: 10 * time.Second}
	if err := opts.readVariables(env); err != nil {
		return nil, err
	}
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	keyFile := flags.String("session-key-file", "", "")
	host, port := flags.String("host", "", ""), flags.String("port", "", "")
	noBrowser := flags.Bool("no-enable-browser", false, "")
	flags.BoolVar(&opts.browser, "enable-browser", true, "")
	flags.StringVar(&opts.addr, "addr", "", "")
	flags.StringVar(&opts.workingDir, "working-dir", opts.workingDir, "")
	flags.StringVar(&opts.username, "username", "", "")
	flags.IntVar(&opts.userID, "user-id", opts.userID, "")
	flags.StringVar(&opts.evalEnv, "browsergym-eval-env", "", "")
	flags.StringVar(&opts.stateDir, "state-dir", "", "")
	flags.IntVar(&opts.maxSessions, "max-sessions", 512, "")
	flags.StringVar(&opts.changes, "changes", "", "")
	flags.Int64Var(&opts.storeBytes, "changes-bytes", 0, "")
	flags.StringVar(&opts.track, "track", "", "")
	flags.BoolVar(&opts.journal.Sync, "journal-sync", false, "")
	flags.Func("journal-text", "", opts.setJournalText)
	flags.Int64Var(&opts.journal.MaxBytes, "journal-bytes", 256<<20, "")
	flags.IntVar(&opts.journal.MaxActions, "journal-actions", 10_000, "")
	flags.DurationVar(&opts.journal.MaxAge, "journal-age", 7*24*time.Hour, "")
	flags.Int64Var(&opts.journal.MaxOutput, "journal-output", 16<<20, "")
	flags.BoolVar(&opts.allowRoot, "allow-root", false, "")
	flags.BoolVar(&opts.devices, "device-groups", false, "")
	flags.BoolVar(&opts.claim, "claim", false, "")
	flags.Func("claim-hash", "", opts.setClaimHash)
	flags.StringVar(&opts.startFIFO, "start-fifo", "", "")
	flags.IntVar(&opts.memoryFD, "memory-fd", 0, "")
	flags.DurationVar(&opts.ttl, "ttl", 0, "")
	flags.DurationVar(&opts.idle, "idle-limit", 0, "")
	flags.StringVar(&opts.draft.URL, "draft-model-url", "", "")
	flags.StringVar(&opts.draft.Model, "draft-model", "", "")
	draftKeyFile := flags.String("draft-model-key-file", "", "")
	flags.DurationVar(&opts.softTimeout, "soft-timeout", opts.softTimeout, "")

	rest, positional, plugins := split(args)
	opts.plugins = plugins
	switch err := flags.Parse(rest); {
	case err == flag.ErrHelp: //nolint:errorlint // flag returns it bare
		_, _ = io.WriteString(stderr, help)
		return nil, err
	case err != nil && strings.HasPrefix(err.Error(), "flag provided but not defined"):
		return nil, usagef("%v: %s", err, otherVersion())
	case err != nil:
		return nil, &usageError{err.Error()}
	}
	opts.browser = opts.browser && !*noBrowser
	if err := opts.setHost(*host, *port); err != nil {
		return nil, err
	}
	if err := opts.completeDraft(*draftKeyFile); err != nil {
		return opts, err
	}
	return opts, opts.complete(positional, *keyFile)
}

// completeDraft checks the options of the model that merges drafts.
func (o *options) completeDraft(keyFile string) error {
	if o.draft.URL == "" {
		if o.draft.Model != "" || keyFile != "" {
			return usagef("--draft-model and --draft-model-key-file need --draft-model-url")
		}
		return nil
	}
	if keyFile != "" {
		data, err := os.ReadFile(keyFile)
		if err != nil {
			return fmt.Errorf("reading the draft model's key: %w", err)
		}
		if o.draft.Key = strings.TrimSpace(string(data)); o.draft.Key == "" {
			return usagef("--draft-model-key-file %s is empty", keyFile)
		}
	}
	var err error
	if o.model, err = llm.New(o.draft); err != nil {
		return usagef("%v", err)
	}
	return nil
}

// split separates words that package flag cannot read: values of --plugins
// that follow as words of their own, and words between flags. plugins is nil
// only where they were not asked for.
func split(args []string) (flags, positional, plugins []string) {
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		isPlugins := name == "--plugins" || name == "-plugins"
		switch {
		case args[i] == "--":
			return flags, append(positional, args[i+1:]...), plugins
		case isPlugins && joined:
			plugins = append(plugins, value)
		case isPlugins:
			plugins = append([]string{}, plugins...)
			for i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				plugins = append(plugins, args[i])
			}
		case !strings.HasPrefix(name, "-"):
			positional = append(positional, args[i])
		case joined || isSwitch(name) || i+1 == len(args):
			flags = append(flags, args[i])
		default: // a flag and its value
			flags = append(flags, args[i], args[i+1])
			i++
		}
	}
	return flags, positional, plugins
}

func isSwitch(name string) bool {
	switch strings.TrimLeft(name, "-") {
	case "enable-browser", "no-enable-browser", "allow-root", "device-groups", "claim", "journal-sync", "help", "h":
		return true
	}
	return false
}

// otherVersion is the advice where a word is not known: a driver starts the server of
// an image that may be older than the driver.
func otherVersion() string {
	return "this is server " + version() + "; where runtimectl started it, 'runtimectl version' must say the same"
}

// complete checks the options and fills in those that were not given.
func (o *options) complete(positional []string, keyFile string) error {
	if o.plugins != nil && len(o.plugins) == 0 {
		return usagef("--plugins needs at least one of %s", strings.Join(api.Plugins, ", "))
	}
	for _, p := range o.plugins {
		if !slices.Contains(api.Plugins, p) {
			return usagef("plugin %q is not known; there are %s", p, strings.Join(api.Plugins, ", "))
		}
	}
	if err := o.setAddr(positional); err != nil {
		return err
	}
	if o.evalEnv != "" && !o.browser {
		return usagef("--browsergym-eval-env needs the browser")
	}
	if o.softTimeout <= 0 {
		return usagef("--soft-timeout %v is not positive", o.softTimeout)
	}
	if keyFile != "" {
		if err := o.readKey(keyFile); err != nil {
			return err
		}
	}
	if err := o.check(); err != nil {
		return err
	}
	dir, err := filepath.Abs(o.workingDir)
	if err != nil {
		return fmt.Errorf("finding the working directory: %w", err)
	}
	o.workingDir = dir
	if o.track == "" {
		o.track = dir
	}
	if o.track, err = filepath.Abs(o.track); err != nil {
		return fmt.Errorf("finding the directory to track: %w", err)
	}
	return nil
}

// setHost sets the address from its two parts, where one was given.
func (o *options) setHost(host, port string) error {
	if host == "" && port == "" {
		return nil
	}
	if o.addr != "" {
		return usagef("--host and --port exclude --addr: the address is given twice")
	}
	defaultHost, defaultPort, _ := net.SplitHostPort(defaultAddr)
	port = cmp.Or(port, defaultPort)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return usagef("--port %q is not a number from 1 to 65535", port)
	}
	o.addr = net.JoinHostPort(cmp.Or(host, defaultHost), port)
	return nil
}

// setAddr sets the address from the arguments that are not flags, or to the default.
func (o *options) setAddr(positional []string) error {
	switch {
	case len(positional) > 0 && strings.Trim(positional[0], "0123456789") != "":
		return usagef("%q is neither a port nor a command: %s", positional[0], otherVersion())
	case len(positional) > 1:
		return usagef("unexpected argument %q: only the port stands alone", positional[1])
	case len(positional) == 1 && o.addr != "":
		return usagef("both a port (%s) and an address (%s) are given", positional[0], o.addr)
	case len(positional) == 1:
		if port, err := strconv.ParseUint(positional[0], 10, 16); err != nil || port == 0 {
			return usagef("port %q is not a number from 1 to 65535", positional[0])
		}
		o.addr = net.JoinHostPort("0.0.0.0", positional[0])
	case o.addr == "":
		o.addr = defaultAddr
	case !httpserver.IsAddress(o.addr):
		return usagef("--addr %s: write HOST:PORT or unix:PATH", o.addr)
	}
	return nil
}

// check refuses options that exclude or need each other, and numbers out of range.
func (o *options) check() error {
	switch {
	case o.claim && o.key != "":
		return usagef("--claim and a session key exclude each other: the owner brings the key")
	case o.journal.MaxBytes <= 0, o.journal.MaxActions <= 0, o.journal.MaxAge <= 0, o.journal.MaxOutput <= 0:
		return usagef("--journal-bytes, --journal-actions, --journal-age and --journal-output must be positive")
	case o.changes != "" && o.changes != api.ChangesUndo && o.changes != api.ChangesFacts && o.changes != api.ChangesOff:
		return usagef("--changes %s: must be undo, facts or off", o.changes)
	case o.changes == api.ChangesOff && o.track != "":
		return usagef("--track needs --changes undo or facts")
	case o.storeBytes < 0:
		return usagef("--changes-bytes %d is negative", o.storeBytes)
	case o.allowRoot && o.key == "" && !o.claim:
		return usagef("--allow-root needs a key: give --session-key-file, SESSION_API_KEY or --claim")
	case o.allowRoot && os.Geteuid() != 0:
		return usagef("--allow-root needs root, and this server has user id %d", os.Geteuid())
	case o.maxSessions <= 0:
		return usagef("--max-sessions %d is not positive", o.maxSessions)
	case o.ttl < 0:
		return usagef("--ttl %v is negative", o.ttl)
	case o.idle < 0:
		return usagef("--idle-limit %v is negative", o.idle)
	}
	return nil
}

func (o *options) setJournalText(text string) error {
	if text != "on" && text != "off" {
		return errors.New("want on or off")
	}
	o.journal.NoText = text == "off"
	return nil
}

func (o *options) setClaimHash(text string) (err error) {
	if o.claimHash, err = hex.DecodeString(text); err != nil || len(o.claimHash) != sha256.Size {
		return fmt.Errorf("want %d hexadecimal digits", 2*sha256.Size)
	}
	return nil
}

func (o *options) readKey(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the session key: %w", err)
	}
	if o.key = strings.TrimSpace(string(data)); o.key == "" {
		return usagef("--session-key-file %s is empty: an empty key would admit every client; write a key into it", file)
	}
	return nil
}

func (o *options) readVariables(env []string) error {
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if value == "" {
			continue
		}
		var err error
		switch name {
		case "SESSION_API_KEY":
			o.key, o.keyInEnv = value, true
		case "OH_SESSION_API_KEYS_0": // of OpenHands' execution protocol
			o.key, o.keyInEnv = cmp.Or(o.key, value), true
		case "OH_EXECUTION_ONLY": // whatever directory the image names: it is where the conversation's files are mounted
			if truthy(value) {
				o.workingDir = "/workspace"
			}
		case "NO_CHANGE_TIMEOUT_SECONDS":
			var seconds int
			seconds, err = atLeast(1, name, value)
			o.softTimeout = time.Duration(seconds) * time.Second
		case "RUNTIME_MAX_MEMORY_GB":
			_, err = atLeast(1, name, value)
		case "SANDBOX_GROUP_ID":
			o.groupID, err = atLeast(0, name, value)
		case "USER":
			o.selfName = value
		case "LOG_JSON":
			o.logJSON = truthy(value)
		case "DEBUG":
			if truthy(value) {
				o.logLevel = slog.LevelDebug
			}
		case "LOG_LEVEL":
			if o.logLevel.UnmarshalText([]byte(value)) != nil { // Python's names differ a little
				o.logLevel = map[string]slog.Level{"WARNING": slog.LevelWarn, "CRITICAL": slog.LevelError}[strings.ToUpper(value)]
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func atLeast(least int, name, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least {
		return 0, usagef("%s is %q, which is not a whole number from %d on", name, value, least)
	}
	return n, nil
}

func truthy(value string) bool {
	return slices.Contains([]string{"1", "true", "yes", "y", "t", "on"}, strings.ToLower(value))
}
