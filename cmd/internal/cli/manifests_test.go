package cli

import (
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/kubernetes/manifests"
)

func TestManifests(t *testing.T) {
	t.Parallel()
	base, err := manifests.Gateway(manifests.Options{})
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := inProcess(t.Context(), nil, "manifests")
	if code != 0 || stdout != string(base) || stderr != "" {
		t.Errorf("exit code %d, %q; the defaults of the flags are not those of the base:\n%s", code, stderr, stdout)
	}
	code, stdout, stderr = inProcess(t.Context(), nil, "manifests", "--namespace", "agents", "--image", "registry.example/a:1", "--replicas", "5")
	if code != 0 || stderr != "" || strings.Contains(stdout, "namespace: actiond\n") || strings.Contains(stdout, "actiond-server:dev") ||
		!strings.Contains(stdout, "  name: agents\n") || !strings.Contains(stdout, "replicas: 5\n") || strings.Count(stdout, "registry.example/a:1") != 2 {
		t.Errorf("exit code %d, %q\n%s", code, stderr, stdout)
	}
	for _, bad := range []string{"--namespace A", "--namespace a.b", "--namespace=", "--image=", "--replicas -1", "--replicas x", "extra"} {
		code, stdout, stderr := inProcess(t.Context(), nil, append([]string{"manifests"}, strings.Fields(bad)...)...)
		if code != command.ExitUsage || stdout != "" || stderr == "" {
			t.Errorf("%s: exit code %d, %q, %q", bad, code, stdout, stderr)
		}
	}
}
