package platform

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/local"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// TestForeignFlags: the command line refuses the flags of a specification that the driver of the
// platform refuses, and no others.
func TestForeignFlags(t *testing.T) {
	dir := t.TempDir()
	policy, secret, kubeconfig := filepath.Join(dir, "policy"), filepath.Join(dir, "secret"), filepath.Join(dir, "kubeconfig")
	testhelp.WriteFile(t, secret, "12345678", 0o600)
	testhelp.WriteFile(t, policy, "mode: public\n", 0o600)
	testhelp.WriteFile(t, kubeconfig, "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", 0o600)
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Setenv("DOCKER_HOST", dockertest.New(t).Address)
	stateDir, agent := dir, agent.Agent{}
	onDocker, err := docker.Open(docker.Config{StateDir: stateDir, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	onKubernetes, err := kubernetes.Open(kubernetes.Config{Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	onLocal, err := local.Open(local.Config{StateDir: stateDir, Agent: agent})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"name": "n", "key": "k", "owner": "o", "env": "A=1", "env-file": "/dev/null", "volume": "claim:/w", "workdir": "/w", "memory": "1g", "disk": "1g",
		"cpus": "1", "gpus": "1", "pids-limit": "99", "nofile": "999", "label": "a=b", "network": "none", "allow": "a.example", "deny": "a.example", "network-policy": policy,
		"secret": "id=A,src=" + secret + ",host=a.example", "no-names": "true", "private": "10.0.0.0/8", "user": "root", "allow-root": "true", "pull": "never", "read-only": "true",
		"runtime": "runsc", "security-opt": "no-new-privileges", "changes": "facts", "track": "/w", "server-flag": "--soft-timeout=30s",
		"image-pull-secret": "s", "node-selector": "a=b", "toleration": "a", "userns": "private", "ttl": "1h", "idle": "1h",
	}
	together := map[string]string{"private": "allow", "no-names": "allow"} // without a policy they are mistakes
	for _, tt := range []struct {
		on     string
		driver sandbox.Driver
	}{{"docker", onDocker}, {"kubernetes", onKubernetes}, {"local", onLocal}} {
		t.Run(tt.on, func(t *testing.T) {
			AddSpec(&cobra.Command{}).flags.VisitAll(func(flag *pflag.Flag) {
				c := &cobra.Command{}
				flags := AddSpec(c)
				for _, name := range []string{flag.Name, together[flag.Name]} {
					value, has := values[name]
					if flag.Name == "volume" && tt.on != "kubernetes" {
						value = dir + ":/w"
					}
					if err := flags.flags.Set(name, value); name != "" && (err != nil || !has) {
						t.Fatalf("--%s has no value in this test, or a wrong one: %v", name, err)
					}
				}
				p := &Platform{Streams: output.Streams{Getenv: func(string) string { return "" }}, on: tt.on}
				err := p.Choose("create", flags.flags)
				if err == nil && p.Local {
					err = flags.checkLocal()
				}
				p.Local = false
				spec, wrong := flags.Spec(p, map[string]string{"docker": "image", "kubernetes": "image"}[tt.on])
				if wrong != nil {
					t.Fatal(wrong)
				}
				_, refused := tt.driver.Check(t.Context(), &spec)
				if cannot := errors.Is(refused, sandbox.ErrInvalid) && strings.Contains(refused.Error(), "cannot honour"); cannot != (err != nil) {
					t.Errorf("--%s: the command line says %v, the driver %v", flag.Name, err, refused)
				}
			})
		})
	}
}
