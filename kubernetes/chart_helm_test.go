//go:build helm

package kubernetes_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes/manifests"
)

// Helm renders the same objects. HELM names the program; without, it is built, which takes minutes.
func TestChartByHelm(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "actiond")
	for name, text := range chart(t) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		testhelp.WriteFile(t, path, text, 0o600)
	}
	helm := []string{"go", "run", "-trimpath", "helm.sh/helm/v3/cmd/helm@v3.22.0"}
	if program := os.Getenv("HELM"); program != "" {
		helm = []string{program}
	}
	cmd := exec.CommandContext(t.Context(), helm[0], append(helm[1:],
		"template", "release", dir, "--namespace", "123", "--kube-version", "1.36.0")...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &errs)
	}
	compareWith(t, byName(t, "\n"+string(out)), manifests.Options{Namespace: "123", Image: chartImage})
}
