package docker_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	server := []string{
		"--working-dir", "/workspace", "--username", "agent", "--user-id", "1000", "--state-dir", "/var/lib/actiond", "--claim",
		"--claim-hash", "66fd798e86168c74fd1f446fa6702bd20e3f5bdb5c7b679a88f89bbb2096da25",
		"--ttl", "10m0s",
	}
	for _, tt := range []struct {
		name           string
		spec           sandbox.Spec
		runDir, volume string
		pool           string
		wantCmd        []string
		wantMounts     []string // source target mode
		wantLabels     map[string]string
		wantTmpfs      int
	}{
		{
			name: "defaults", runDir: "/state/run", volume: "v",
			wantCmd:    append([]string{"--addr", "unix:/run/actiond/sock"}, server...),
			wantMounts: []string{"v /.actiond ro", "/state/run /run/actiond rw"},
			wantLabels: map[string]string{
				"dev.actiond.managed": "sandbox", "dev.actiond.id": "0123456789ab", "dev.actiond.name": "0123456789ab",
				"dev.actiond.deadline": "", "dev.actiond.idle": "", "dev.actiond.pool": "", "dev.actiond.transport": "socket",
				"dev.actiond.controller": "c0ffee", "dev.actiond.created": "2001-09-09T01:46:40Z", "dev.actiond.user": "agent:1000",
				"dev.actiond.server": "feed", "dev.actiond.owner": "",
			},
		},
		{
			name: "copied server, port", spec: sandbox.Spec{Name: "n", Owner: "o"},
			wantCmd:    append([]string{"--addr", "0.0.0.0:8000"}, server...),
			wantLabels: map[string]string{"dev.actiond.transport": "port", "dev.actiond.name": "n", "dev.actiond.owner": "o"},
		},
		{
			name: "limits", runDir: "/r", volume: "v",
			spec:       sandbox.Spec{TTL: time.Hour, Idle: time.Minute, Labels: map[string]string{"mine": "x"}, Flags: []string{"--soft-timeout=3s"}, Env: map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}},
			wantCmd:    slices.Concat([]string{"--addr", "unix:/run/actiond/sock"}, server, []string{"--idle-limit", "1m0s", "--soft-timeout=3s"}),
			wantMounts: []string{"v /.actiond ro", "/r /run/actiond rw"},
			wantLabels: map[string]string{"dev.actiond.deadline": "2001-09-09T02:46:40Z", "dev.actiond.idle": "1m0s", "mine": "x"},
		},
		{
			name: "in a pool the limits are the pool's", runDir: "/r", volume: "v", pool: "p",
			spec:       sandbox.Spec{TTL: time.Minute, Idle: time.Minute},
			wantCmd:    slices.Concat([]string{"--addr", "unix:/run/actiond/sock"}, server[:len(server)-1], []string{"1h0m0s"}),
			wantMounts: []string{"v /.actiond ro", "/r /run/actiond rw"},
			wantLabels: map[string]string{"dev.actiond.pool": "p", "dev.actiond.deadline": "2001-09-09T02:46:40Z", "dev.actiond.idle": ""},
		},
		{
			name: "read-only, with mounts", runDir: "/r", volume: "v",
			spec:       sandbox.Spec{ReadOnly: true, Mounts: []sandbox.Mount{{Source: "/a", Target: "/data", ReadOnly: true}, {Source: "/b", Target: "/workspace"}}},
			wantCmd:    slices.Concat([]string{"--addr", "unix:/run/actiond/sock"}, server, []string{"--start-fifo", "/run/actiond/start"}),
			wantMounts: []string{"v /.actiond ro", "/r /run/actiond rw", "/a /data ro", "/b /workspace rw"},
			wantTmpfs:  4,
		},
		{
			name: "root", runDir: "/r", volume: "v", spec: sandbox.Spec{User: "root"},
			wantCmd: append([]string{
				"--addr", "unix:/run/actiond/sock", "--working-dir", "/workspace", "--username", "root", "--user-id", "0",
			}, server[6:]...),
			wantMounts: []string{"v /.actiond ro", "/r /run/actiond rw"},
		},
		{
			name: "read-only without mounts", runDir: "/r", volume: "v", spec: sandbox.Spec{ReadOnly: true},
			wantCmd:    append([]string{"--addr", "unix:/run/actiond/sock"}, server...),
			wantMounts: []string{"v /.actiond ro", "/r /run/actiond rw"},
			wantTmpfs:  5,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.spec.Image = "debian"
			if tt.spec.User != "root" {
				tt.spec.UserID = 1000
			}
			config, host, err := docker.Plan(tt.spec, tt.runDir, tt.volume, tt.pool)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(config.Cmd, tt.wantCmd) {
				t.Errorf("arguments:\ngot  %v\nwant %v", config.Cmd, tt.wantCmd)
			}
			if !slices.Equal(config.Env, []string{"NVIDIA_VISIBLE_DEVICES=void"}) {
				t.Errorf("the image or the specification decides about GPUs: %v", config.Env)
			}
			var mounts []string
			for _, m := range host.Mounts {
				mode := "rw"
				if m.ReadOnly {
					mode = "ro"
				}
				mounts = append(mounts, m.Source+" "+m.Target+" "+mode)
				if m.Type == mount.TypeBind && m.BindOptions.Propagation != mount.PropagationRPrivate {
					t.Errorf("mount %s propagates %q", m.Source, m.BindOptions.Propagation)
				}
			}
			if !slices.Equal(mounts, tt.wantMounts) {
				t.Errorf("mounts:\ngot  %v\nwant %v", mounts, tt.wantMounts)
			}
			for name, want := range tt.wantLabels {
				if got, ok := config.Labels[name]; !ok || got != want {
					t.Errorf("label %s: got %q (there: %v), want %q", name, got, ok, want)
				}
			}
			if want := max(1, tt.wantTmpfs); len(host.Tmpfs) != want {
				t.Errorf("file systems in memory: got %v, want %d", host.Tmpfs, want)
			}
			if published := len(host.PortBindings) > 0; published != (tt.runDir == "") {
				t.Errorf("a port is published: %v", published)
			}
			for _, bindings := range host.PortBindings {
				for _, b := range bindings {
					if b.HostIP != "127.0.0.1" || b.HostPort != "" {
						t.Errorf("published on %+v, want the loopback and any port", b)
					}
				}
			}
			checkSafe(t, tt.spec, config.User, host)
		})
	}
}

// checkSafe checks what holds for every sandbox.
func checkSafe(t *testing.T, spec sandbox.Spec, user string, host *container.HostConfig) {
	t.Helper()
	wantCaps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN"}
	if spec.User == "root" {
		wantCaps = append(wantCaps, "CAP_DAC_OVERRIDE", "CAP_FOWNER")
	}
	switch {
	case user != "0:0":
		t.Errorf("the server's user is %q, whatever the image says", user)
	case !slices.Equal(host.CapDrop, []string{"ALL"}), !slices.Equal(host.CapAdd, wantCaps), host.Privileged:
		t.Errorf("capabilities: %v dropped, %v added", host.CapDrop, host.CapAdd)
	case !slices.Contains(host.SecurityOpt, "no-new-privileges"), !slices.Contains(host.SecurityOpt, "seccomp="+docker.Profile):
		t.Error("no-new-privileges or the seccomp profile is missing")
	case host.Init == nil || !*host.Init:
		t.Error("no init")
	case host.Memory <= 0, host.MemorySwap != host.Memory, host.NanoCPUs <= 0, host.PidsLimit == nil, *host.PidsLimit <= 0:
		t.Errorf("limits: %+v", host.Resources)
	case host.LogConfig.Type != "json-file", host.LogConfig.Config["max-size"] == "", host.LogConfig.Config["max-file"] == "":
		t.Errorf("logs are not bounded: %+v", host.LogConfig)
	case host.ReadonlyRootfs != spec.ReadOnly:
		t.Errorf("read-only: %v", host.ReadonlyRootfs)
	}
	memoryFiles := host.ShmSize
	for _, options := range host.Tmpfs {
		for option := range strings.SplitSeq(options, ",") {
			if n, ok := strings.CutPrefix(option, "size="); ok {
				var size int64
				if err := json.Unmarshal([]byte(n), &size); err != nil {
					t.Error(err)
				}
				memoryFiles += size
			}
		}
	}
	if memoryFiles > host.Memory/4 {
		t.Errorf("files in memory get %d of %d bytes, more than a quarter", memoryFiles, host.Memory)
	}
}

// Where set-uid programs gain privileges, sudo has what root needs, and so have programs of
// root's where they are allowed.
func TestSudoCapabilities(t *testing.T) {
	t.Parallel()
	server := []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_CHOWN"}
	root := append(slices.Clone(server), "CAP_DAC_OVERRIDE", "CAP_FOWNER")
	sudo := append(slices.Clone(root), "CAP_AUDIT_WRITE")
	install := append(slices.Clone(root), "CAP_FSETID")
	for _, tt := range []struct {
		user, option string
		want         []string
	}{
		{"agent, and root is allowed", "no-new-privileges=true", install},
		{"root, and root is allowed", "no-new-privileges=true", install},
		{"agent, and root is allowed", "no-new-privileges=false", append(slices.Clone(sudo), "CAP_FSETID")},
		{"agent", "no-new-privileges=false", sudo},
		{"agent", "no-new-privileges:false", sudo},
		{"root", "no-new-privileges=0", sudo},
		{"agent", "no-new-privileges", server},
		{"agent", "no-new-privileges=true", server},
		{"root", "no-new-privileges=true", root},
		{"agent", "seccomp=false", server},
	} {
		user, allowed, _ := strings.Cut(tt.user, ", ")
		spec := sandbox.Spec{Image: "i", User: user, AllowRoot: allowed != "", SecurityOpts: []string{tt.option}}
		config, host, err := docker.Plan(spec, "", "", "")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(host.CapAdd, tt.want) {
			t.Errorf("%s with %s: got %v, want %v", tt.user, tt.option, host.CapAdd, tt.want)
		}
		if slices.Contains(config.Cmd, "--allow-root") != spec.AllowRoot {
			t.Errorf("%s: the server is started with %q", tt.user, config.Cmd)
		}
	}
}

func TestSpecRefuses(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]sandbox.Spec{
		"no image":             {},
		"name":                 {Image: "i", Name: "-x"},
		"user":                 {Image: "i", User: "a b"},
		"user as option":       {Image: "i", User: "--root"},
		"root's id":            {Image: "i", User: "root", UserID: 5},
		"negative id":          {Image: "i", UserID: -1},
		"working directory":    {Image: "i", WorkDir: "work"},
		"dots":                 {Image: "i", WorkDir: "/a/../b"},
		"little memory":        {Image: "i", Memory: 1},
		"negative memory":      {Image: "i", Memory: -1},
		"little disk":          {Image: "i", Disk: 1},
		"negative disk":        {Image: "i", Disk: -1},
		"negative processors":  {Image: "i", CPUs: -1},
		"no number":            {Image: "i", CPUs: math.NaN()},
		"infinite processors":  {Image: "i", CPUs: math.Inf(1)},
		"unlimited processes":  {Image: "i", Pids: -1},
		"host network":         {Image: "i", Network: "host"},
		"another's network":    {Image: "i", Network: "container:x"},
		"our label":            {Image: "i", Labels: map[string]string{"dev.actiond.managed": "x"}},
		"empty label":          {Image: "i", Labels: map[string]string{"": "x"}},
		"security option":      {Image: "i", SecurityOpts: []string{"privileged"}},
		"empty profile":        {Image: "i", SecurityOpts: []string{"seccomp="}},
		"negative limit":       {Image: "i", TTL: -1},
		"negative idle limit":  {Image: "i", Idle: -1},
		"variable":             {Image: "i", Env: map[string]string{"A=B": ""}},
		"NUL":                  {Image: "i", Env: map[string]string{"A": "\x00"}},
		"our flag":             {Image: "i", Flags: []string{"--addr=0.0.0.0:1"}},
		"our flag, one dash":   {Image: "i", Flags: []string{"-addr=0.0.0.0:1"}},
		"argument, not a flag": {Image: "i", Flags: []string{"8000"}},
		"pull":                 {Image: "i", Pull: "often"},
		"guessable secret":     {Image: "i", Secret: "hunter2"},
		"secret in two lines":  {Image: "i", Secret: strings.Repeat("a", 32) + "\n"},
		"long key":             {Image: "i", Key: strings.Repeat("k", 513)},
	} {
		if _, _, err := docker.Plan(spec, "/r", "v", ""); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

func TestSpecHash(t *testing.T) {
	t.Parallel()
	base := sandbox.Spec{Image: "i"}
	same := map[string]sandbox.Spec{
		"defaults written out": {Image: "i", User: "agent", WorkDir: "/workspace", Memory: 2 << 30, CPUs: 2, Pids: 512, OpenFiles: 2560, Network: "bridge"},
		"empty, not absent": {
			Image: "i", Env: map[string]string{}, Mounts: []sandbox.Mount{}, Labels: map[string]string{},
			SecurityOpts: []string{}, Flags: []string{},
		},
		"key, name, owner": {Image: "i", Key: "k", Secret: strings.Repeat("s", 32), Name: "n", Owner: "o", Pull: sandbox.PullAlways},
	}
	for name, spec := range same {
		if docker.Hash(spec) != docker.Hash(base) {
			t.Errorf("%s changes the hash", name)
		}
	}
	secret := sandbox.Spec{Image: "i", Env: map[string]string{"TOKEN": "a"}}
	if docker.Hash(secret) != docker.Hash(sandbox.Spec{Image: "i", Env: map[string]string{"TOKEN": "b"}}) {
		t.Error("the hash tells about a variable's value")
	}
	// Each field but those makes another sandbox.
	ignored := []string{"Key", "Secret", "Name", "Owner", "Pull"}
	changed := sandbox.Spec{
		Image: "j", Env: map[string]string{"A": ""}, Mounts: []sandbox.Mount{{Source: "/a", Target: "/b", ReadOnly: true}}, User: "u", UserID: 5, WorkDir: "/w",
		Memory: 1 << 30, Disk: 1 << 30, CPUs: 1, Pids: 100, OpenFiles: 1000, Network: "none", Labels: map[string]string{"a": "b"}, Runtime: "runsc",
		SecurityOpts: []string{"no-new-privileges"}, ReadOnly: true, AllowRoot: true, TTL: time.Hour, Idle: time.Hour, Flags: []string{"--x"},
		PullSecrets: []string{"a"}, NodeSelector: map[string]string{"a": "b"}, Tolerations: []string{"a"}, UserNamespace: true,
		Policy: &egress.Policy{Mode: egress.ModePublic}, Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, NoNames: true, GPUs: sandbox.GPUs{Count: 1},
	}
	from := reflect.ValueOf(changed)
	for i := range from.NumField() {
		name := from.Type().Field(i).Name
		if slices.Contains(ignored, name) {
			continue
		}
		spec := base
		reflect.ValueOf(&spec).Elem().Field(i).Set(from.Field(i))
		if from.Field(i).IsZero() || docker.Hash(spec) == docker.Hash(base) {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

func TestForbids(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]bool{
		"/": true, "/etc": true, "/etc/ssl": true, "/proc": true, "/proc/1/root": true, "/sys/fs/cgroup": true, "/dev": true, "/dev/shm": true,
		"/var": true, "/var/run": true, "/run": true, "/run/user/1000": true, "/run/docker.sock": true, "/var/lib/docker/volumes": true,
		"/var/lib": true, "/var/lib/actiond/sandboxes/x": true, "/opt/engine": true, "/opt/engine/docker.sock": true, "/opt": true,
		"/root": true, "/home": true, "/home/alice": true, "/home/alice/.ssh": true, "/home/alice/.ssh/id_rsa": true,
		"/home/bob/.aws/credentials": true, "/srv/backup/.gnupg": true, "/home/alice/.docker/config.json": true, "/boot/grub": true,
		"/home/alice/.config": true, "/home/alice/.config/gh": true, "/srv/u/.config/gcloud/x": true,
		"/usr": true, "/usr/bin": true, "/lib/modules": true,
		"/home/alice/project": false, "/root/project": false, "/srv": false, "/work/etc": false, "/tmp/x": false, "/etcetera": false,
		"/home/alice/.config/app": false, "/opt/engines": false, "/usr/local/share/data": false, "/var/lib/dockerish": false,
	} {
		if got := docker.Forbids(source); (got != "") != want {
			t.Errorf("%s: got %q, want it refused: %v", source, got, want)
		}
	}
}

func TestMountsFollowLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inside := filepath.Join(dir, "inside")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"etc": "/etc", "twice": "etc", "fine": "inside", "nowhere": "missing", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"etc": "leads to /etc", "twice": "leads to /etc", "etc/../etc": "leads to /etc", "etc/ssl": "leads to /etc/ssl",
		"nowhere": "no such file", "loop": "too many levels of symbolic links",
	} {
		_, err := docker.ResolveMounts([]sandbox.Mount{{Source: dir + "/" + name, Target: "/x"}})
		if !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want ErrInvalid that says %q", name, err, want)
		}
	}
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := docker.ResolveMounts([]sandbox.Mount{{Source: home, Target: "/x"}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a home in an unusual place: got %v, want ErrInvalid", err)
	}
	got, err := docker.ResolveMounts([]sandbox.Mount{{Source: filepath.Join(dir, "fine"), Target: "/x"}})
	if want := []sandbox.Mount{{Source: inside, Target: "/x"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, target := range []string{"", "x", "/", "/proc", "/proc/self", "/run", "/run/actiond", "/run/actiond/x", "/.actiond", "/a/../b", "/a/", "/var/lib"} {
		if _, err := docker.ResolveMounts([]sandbox.Mount{{Source: inside, Target: target}}); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("target %q: got %v, want ErrInvalid", target, err)
		}
	}
	if _, err := docker.ResolveMounts([]sandbox.Mount{{Source: inside, Target: "/x"}, {Source: dir, Target: "/x"}}); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("one target twice: got %v, want ErrInvalid", err)
	}
}

func FuzzForbids(f *testing.F) {
	for _, seed := range []string{"/", "/etc/x", "/home/alice/a", "/var/run/docker.sock", "/srv/.ssh", "/opt/engine"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		source = path.Clean("/" + source)
		refused := docker.Forbids(source) != ""
		// A mount of a directory in a refused place is refused, and so is one that a refused place is
		// in, but for a home: only what is in it by a name of its own is.
		if below := docker.Forbids(path.Join(source, ".ssh")); below == "" {
			t.Errorf("%s/.ssh is allowed", source)
		}
		for _, root := range []string{"/etc", "/proc", "/sys", "/dev", "/run", "/var/lib/actiond"} {
			if (source == root || strings.HasPrefix(source, root+"/") || strings.HasPrefix(root+"/", strings.TrimSuffix(source, "/")+"/")) && !refused {
				t.Errorf("%s is allowed in spite of %s", source, root)
			}
		}
	})
}

func TestProfile(t *testing.T) {
	t.Parallel()
	var profile struct {
		DefaultAction string
		Syscalls      []struct {
			Names    []string
			Action   string
			Args     []struct{ Index, Value int }
			Includes struct{ Caps []string }
		}
	}
	if err := json.Unmarshal([]byte(docker.Profile), &profile); err != nil {
		t.Fatal(err)
	}
	if profile.DefaultAction != "SCMP_ACT_ERRNO" {
		t.Errorf("default action %q", profile.DefaultAction)
	}
	allowed := map[string]bool{}
	for _, rule := range profile.Syscalls {
		for _, name := range rule.Names {
			if rule.Action == "SCMP_ACT_ALLOW" && len(rule.Includes.Caps) == 0 && len(rule.Args) == 0 {
				allowed[name] = true
			}
		}
	}
	for name, want := range map[string]bool{
		"read": true, "execve": true, "io_uring_setup": false, "io_uring_enter": false, "socket": false, "socketcall": false,
		"bpf": false, "mount": false, "userfaultfd": false, "keyctl": false, "kexec_load": false,
	} {
		if allowed[name] != want {
			t.Errorf("%s without conditions: got %v, want %v", name, allowed[name], want)
		}
	}
}

func TestProtection(t *testing.T) {
	t.Parallel()
	lost, gained := docker.Protection(sandbox.Spec{})
	if len(lost) != 0 || len(gained) != 0 {
		t.Errorf("defaults: lost %q, gained %q", lost, gained)
	}
	lost, gained = docker.Protection(sandbox.Spec{
		User: "root", SecurityOpts: []string{"seccomp=unconfined", "no-new-privileges:false"}, Runtime: "runsc", ReadOnly: true, Network: "none",
		Mounts: []sandbox.Mount{{Source: "/srv/x", Target: "/x"}, {Source: "/srv/y", Target: "/y", ReadOnly: true}},
	})
	if len(lost) != 4 || len(gained) != 3 {
		t.Errorf("got lost %q, gained %q, want 4 and 3", lost, gained)
	}
}

// A setting that only Pods have is refused with its name.
func TestPodOptions(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{
		Image: "image", PullSecrets: []string{"a"}, NodeSelector: map[string]string{"a": "b"}, Tolerations: []string{"a"}, UserNamespace: true,
	}
	const want = "the Docker engine cannot honour a node selector, a user namespace, image pull secrets, tolerations"
	if _, _, err := docker.Plan(spec, "", "", ""); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
