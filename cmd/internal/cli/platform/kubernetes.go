package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/actiond/actiond/sandbox"
)

// Cluster says how the driver of Kubernetes is opened.
type Cluster struct {
	Options

	Name         string // CONTEXT[/NAMESPACE], empty: the current ones
	ServerImage  string
	ServerVolume bool          // mount that image
	ReadyTimeout time.Duration // zero: the driver's
}

// OpenCluster opens the driver of Kubernetes.
type OpenCluster func(Cluster) (sandbox.Driver, error)

// kubernetesProgram has the same commands as runtimectl, and the driver of Kubernetes.
const kubernetesProgram = "runtimectl-kubernetes"

// CallerVariable has the version of a runtimectl that replaced itself by this program.
const CallerVariable = "ACTIOND_RUNTIMECTL_VERSION"

var errNoDriver = errors.New("this program does not have the driver of Kubernetes: " + kubernetesProgram + " has it")

// Replace replaces this process by runtimectl-kubernetes, where the sandboxes are Pods
// and this program does not have their driver. Where it returns, [Platform.Open] says
// why, if it is called.
func (p *Platform) Replace() {
	if !p.Kubernetes || p.OpenCluster != nil || p.Become == nil || p.Caller != "" {
		return
	}
	program, err := p.findKubernetes()
	if err == nil {
		err = fmt.Errorf("starting %s: %w", program, p.Become(program, CallerVariable+"="+p.Version))
	}
	p.notReplaced = err
}

// findKubernetes finds runtimectl-kubernetes beside this program or in PATH. It
// ignores relative directories: an agent may have written to the current one.
func (p *Platform) findKubernetes() (string, error) {
	program, err := beside(kubernetesProgram)
	if err != nil {
		return "", err
	}
	for _, dir := range append([]string{filepath.Dir(program)}, filepath.SplitList(p.Getenv("PATH"))...) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, kubernetesProgram)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("--on kubernetes needs the program %s, which is neither in %s nor in PATH: it is in the release beside runtimectl, and 'make build-kubernetes' builds it",
		kubernetesProgram, filepath.Dir(program))
}

// openCluster opens the driver of Kubernetes, if this program has it and is of the
// version of the one that it replaced.
func (p *Platform) openCluster(c Cluster) (sandbox.Driver, error) {
	switch {
	case p.notReplaced != nil:
		return nil, p.notReplaced
	case p.OpenCluster == nil:
		return nil, errNoDriver
	case p.Caller != "" && p.Caller != p.Version:
		self, _ := os.Executable() // the path only helps to find it
		return nil, fmt.Errorf("%s %s is version %s, and the runtimectl that started it is version %s: install the same version of both", kubernetesProgram, self, p.Version, p.Caller)
	}
	return p.OpenCluster(c)
}
