package kubernetes

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/actiond/actiond/kubernetes/internal/taint"
	"github.com/actiond/actiond/sandbox"
)

// Check is [sandbox.Driver]'s. It does not ask the cluster.
func (d *Driver) Check(_ context.Context, spec *sandbox.Spec) (hash string, err error) {
	if err := sandbox.CannotHonour(d, map[string]bool{
		"a process limit (the kubelet has one, podPidsLimit)": spec.Pids != 0 && spec.Pids != sandbox.DefaultPids,
		"a file limit": spec.OpenFiles != 0 && spec.OpenFiles != sandbox.DefaultFiles &&
			(spec.Policy == nil || spec.OpenFiles != sandbox.PolicyFiles),
		"security options": len(spec.SecurityOpts) > 0,
		"read-only files":  spec.ReadOnly,
		"network " + spec.Network + " (Pods know default and none)": !slices.Contains([]string{"", "default", "none"},
			spec.Network),
	}); err != nil {
		return "", err
	}
	if spec.GPUs.Count == sandbox.AllGPUs || len(spec.GPUs.Devices) > 0 {
		return "", sandbox.Invalid("GPUs %q: %s gives GPUs by number; ask for a number such as 1", spec.GPUs, d.Platform())
	}
	if spec.Policy == nil {
		spec.Network = cmp.Or(spec.Network, "default")
	}
	if err := spec.Complete(); err != nil {
		return "", err
	}
	if err := checkMounts(spec.Mounts); err != nil {
		return "", err
	}
	if err := checkPlacement(spec); err != nil {
		return "", err
	}
	return spec.Hash(), checkLabels(spec.Labels)
}

// checkPlacement refuses values that the API server would refuse.
func checkPlacement(s *sandbox.Spec) error {
	if s.UserNamespace && s.UserID >= namespaceIDs {
		return sandbox.Invalid("user id %d: the user namespace of a Pod has the ids below %d", s.UserID, namespaceIDs)
	}
	for _, name := range s.PullSecrets {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return sandbox.Invalid("image pull secret %q is not the name of a Secret: %s", name, problems[0])
		}
	}
	for name, value := range s.NodeSelector {
		if problems := slices.Concat(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)); len(problems) > 0 {
			return sandbox.Invalid("node selector %s=%s: a node cannot have this label: %s", name, value, problems[0])
		}
	}
	for _, word := range s.Tolerations {
		if _, err := toleration(word); err != nil {
			return err
		}
	}
	return nil
}

// toleration reads KEY[=VALUE][:EFFECT].
func toleration(word string) (corev1.Toleration, error) {
	read, err := taint.Parse(word)
	if err != nil {
		return corev1.Toleration{}, err
	}
	t := corev1.Toleration{Key: read.Key, Value: read.Value, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffect(read.Effect)}
	if read.HasValue {
		t.Operator = corev1.TolerationOpEqual
	}
	return t, nil
}

// checkMounts refuses all mounts except claims of the namespace: a Pod with a path of its
// node could reach files of other Pods.
func checkMounts(mounts []sandbox.Mount) error {
	for _, m := range mounts {
		if problems := validation.IsDNS1123Subdomain(m.Source); len(problems) > 0 {
			return sandbox.Invalid("mount %s: Kubernetes mounts persistent volume claims of the namespace, CLAIM:/path, and no paths of a host", m.Source)
		}
		if err := sandbox.CleanAbsolute("mount target", m.Target); err != nil {
			return err
		}
		for _, own := range []string{serverDir, stateDir} {
			if m.Target == "/" || m.Target == own || strings.HasPrefix(m.Target, own+"/") || strings.HasPrefix(own, m.Target+"/") {
				return sandbox.Invalid("mount target %s: the sandbox's server has its files in %s", m.Target, path.Clean(own))
			}
		}
	}
	return nil
}

// checkLabels refuses labels that a Pod cannot have.
func checkLabels(labels map[string]string) error {
	for name, value := range labels {
		problems := slices.Concat(validation.IsQualifiedName(name), validation.IsValidLabelValue(value))
		if len(problems) > 0 {
			return sandbox.Invalid("label %s=%s: a Pod cannot have it: %s", name, value, problems[0])
		}
		if err := checkDomain(name, "actiond.dev"); err != nil {
			return err
		}
	}
	return nil
}

// CheckLabels is [sandbox.Labeler]'s.
func (d *Driver) CheckLabels(labels map[string]string) error {
	for name := range labels { // controllers of the cluster obey them
		if err := checkDomain(name, "kubernetes.io", "k8s.io", "x-k8s.io"); err != nil {
			return err
		}
	}
	return nil
}

// checkDomain refuses a label of one of the domains.
func checkDomain(name string, reserved ...string) error {
	domain, _, has := strings.Cut(name, "/")
	for _, r := range reserved {
		if has && (domain == r || strings.HasSuffix(domain, "."+r)) {
			return sandbox.Invalid("label %s: labels of %s are reserved; use another prefix", name, r)
		}
	}
	return nil
}
