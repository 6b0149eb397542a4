package kubernetes

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/sandbox"
)

const (
	domain = "actiond.dev/"

	// Labels of Pods and Secrets.
	labelManaged = domain + "managed" // "sandbox"
	labelID      = domain + "id"
	labelWarm    = domain + "warm" // "true" until the claim: a PodDisruptionBudget protects the others
	labelName    = domain + "name" // of a Secret: the hash of the name

	// Annotations of Pods.
	noteName   = domain + "name"
	noteOwner  = domain + "owner"
	noteSpec   = domain + "spec"         // hash of the specification
	noteAge    = domain + "age"          // of the Pod when the sandbox was created, a duration; absent: 0
	noteEnds   = domain + "ends-after"   // age of the Pod when the sandbox's time is up, a duration; absent: never
	noteIdle   = domain + "idle"         // a duration, empty: none
	noteUser   = domain + "user"         // NAME:UID
	noteRoot   = domain + "allow-root"   // "true"; otherwise absent
	noteGPUs   = domain + "gpus"         // how many; otherwise absent
	noteImage  = domain + "image"        // as in the request
	notePool   = domain + "pool"         // the warm pool it waits in
	noteReady  = domain + "ready"        // when the first command ran; absent before
	noteWithin = domain + "ready-within" // how long its creator waits for it to run, a duration
	noteServer = domain + "server"       // the image with the server

	// Annotations that keep the cluster autoscaler and Karpenter from removing the nodes of
	// sandboxes in use; they may remove those of warm sandboxes.
	noteEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	noteKeep  = "karpenter.sh/do-not-disrupt"

	containerName = "sandbox"
	initName      = "server"
	serverDir     = "/.actiond"
	serverPath    = serverDir + "/server"
	stateDir      = "/var/lib/actiond"
	// nameServer is that of a Pod with a network policy: its own server, and without names nothing,
	// so that a lookup fails at once.
	nameServer = "127.0.0.1"
	// port is one at which only root can listen: otherwise a process of the agent could
	// bind it while the server restarts, and receive the key.
	port = 1000
)

// Limits of the files of a Pod on its node.
var (
	stateBytes  = resource.MustParse("1Gi")  // undo history, journal, contents
	serverBytes = resource.MustParse("64Mi") // the server
	diskBytes   = resource.MustParse("10Gi") // all files: state, logs and those of the image
)

// gpuResource is the resource of NVIDIA's device plugin.
const gpuResource corev1.ResourceName = "nvidia.com/gpu"

// capabilities are those that a server with uid 0 needs to run commands and open files as
// another user, and to listen at its port. Pod Security "baseline" admits them.
var capabilities = []corev1.Capability{"SETUID", "SETGID", "KILL", "CHOWN", "NET_BIND_SERVICE"}

// rootCapabilities let commands that run as root write the files of other users.
var rootCapabilities = []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}

// installCapability is needed by programs of root that install packages, besides
// rootCapabilities. Pod Security "baseline" admits it, too.
const installCapability corev1.Capability = "FSETID"

// Default user ids: inside those of a Pod's user namespace, and above those of accounts.
const (
	namespaceIDs = 1 << 16
	firstUserID  = 40000
	userIDs      = 20000
	mountUserID  = 1000 // with a volume, whose files keep one owner
)

// userID returns the user id of the commands. The kernel limits inotify instances and pipe
// buffers for each user id, so sandboxes of a node should have different ones.
func userID(s *sandbox.Spec, id string) int {
	switch {
	case s.UserID != 0 || s.User == "root":
		return s.UserID
	case len(s.Mounts) > 0:
		return mountUserID
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return firstUserID + int(h.Sum32()%userIDs)
}

// seed returns the seed of the user id of the commands. A claim does not change the user of
// a Pod.
func (r *record) seed() string { return cmp.Or(r.From, r.ID) }

// podFor returns the Pod of a completed specification. It depends on nothing else.
func podFor(s *sandbox.Spec, r *record, config *Config) *corev1.Pod {
	no, uid := false, int64(0)
	grace := int64(8) // the server ends within 5 seconds
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: r.Pod, Labels: podLabels(s, r.ID), Annotations: notesOf(s, r, 0)},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  &no,
			EnableServiceLinks:            &no,
			Hostname:                      r.ID,
			TerminationGracePeriodSeconds: &grace,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: &uid, RunAsGroup: &uid,
				// Some runtimes let every user listen at every port.
				Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "1024"}},
			},
			InitContainers: []corev1.Container{initContainer(config.ServerImage)},
			Containers:     []corev1.Container{container(s, r)},
			Volumes: []corev1.Volume{
				emptyDir("server", serverBytes), emptyDir("state", stateBytes),
			},
		},
	}
	if r.Pool != "" {
		pod.Labels[labelWarm] = "true"
	}
	pod.Annotations[noteServer] = config.ServerImage
	pod.Annotations[noteWithin] = config.ReadyTimeout.String()
	if s.Policy != nil { // no name server outside is reached
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{nameServer}}
	}
	for _, name := range s.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	for _, word := range s.Tolerations {
		t, _ := toleration(word) // Check has read it
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
	}
	pod.Spec.NodeSelector = s.NodeSelector
	if s.UserNamespace {
		pod.Spec.HostUsers = &no
	}
	if config.ServerVolume {
		pod.Spec.InitContainers = nil
		pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: config.ServerImage, PullPolicy: corev1.PullIfNotPresent}}
	}
	if s.Runtime != "" {
		pod.Spec.RuntimeClassName = &s.Runtime
	}
	for i, m := range s.Mounts {
		name := "mount-" + strconv.Itoa(i)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: m.Source, ReadOnly: m.ReadOnly},
		}})
		mounts := &pod.Spec.Containers[0].VolumeMounts
		*mounts = append(*mounts, corev1.VolumeMount{Name: name, MountPath: m.Target, ReadOnly: m.ReadOnly})
	}
	return pod
}

// podLabels returns the labels of a Pod: the creator's and ours.
func podLabels(s *sandbox.Spec, id string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, s.Labels)
	maps.Copy(all, map[string]string{labelManaged: "sandbox", labelID: id})
	switch {
	case s.Policy != nil:
		all[labelNetwork] = networkPolicy
	case s.Network == "none":
		all[labelNetwork] = "none"
	}
	return all
}

func emptyDir(name string, limit resource.Quantity) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}
}

// initContainer copies the server into its volume, and makes root the owner of the state
// directory: every user can write an empty directory of Kubernetes. It is a sidecar, which
// keeps running without work: a kubelet starts the sandbox's container as soon as the hook
// has returned, but takes up to a second to notice the end of an init container.
func initContainer(image string) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{
		Name: initName, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, RestartPolicy: &always,
		Args: []string{"lend", serverPath, stateDir},
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/server", "lent", serverPath}},
		}},
		SecurityContext: security(nil),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1m"), "memory": resource.MustParse("16Mi"), "ephemeral-storage": {}},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("128Mi"), "ephemeral-storage": serverBytes},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "server", MountPath: serverDir}, {Name: "state", MountPath: stateDir}},
	}
}

// container returns the container of the commands. It requests a tenth of its processor
// time and a quarter of its memory: most sandboxes wait most of the time.
func container(s *sandbox.Spec, r *record) corev1.Container {
	caps := capabilities
	if s.User == "root" || s.AllowRoot {
		caps = slices.Concat(caps, rootCapabilities)
	}
	if s.AllowRoot {
		caps = append(caps, installCapability)
	}
	milli := max(int64(s.CPUs*1000), 10)
	disk := diskBytes
	if s.Disk > 0 {
		disk = *resource.NewQuantity(s.Disk, resource.BinarySI)
	}
	confined := security(caps)
	// Not for the whole Pod: a runtime takes 10 to 20 ms for each process that it starts with a profile.
	confined.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	c := corev1.Container{
		Name: containerName, Image: s.Image, ImagePullPolicy: pullPolicies[s.Pull],
		Command:         append([]string{serverPath, "init"}, arguments(s, r)...),
		WorkingDir:      "/",
		SecurityContext: confined,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				"cpu":               *resource.NewMilliQuantity(max(milli/10, 1), resource.DecimalSI),
				"memory":            *resource.NewQuantity(s.Memory/4, resource.BinarySI),
				"ephemeral-storage": {},
			},
			Limits: corev1.ResourceList{
				"cpu":               *resource.NewMilliQuantity(milli, resource.DecimalSI),
				"memory":            *resource.NewQuantity(s.Memory, resource.BinarySI),
				"ephemeral-storage": disk,
			},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "server", MountPath: serverDir, ReadOnly: true}, {Name: "state", MountPath: stateDir},
		},
	}
	if s.GPUs.Count > 0 { // a variable of the Pod would replace the one by which the device plugin says which
		c.Resources.Limits[gpuResource] = *resource.NewQuantity(int64(s.GPUs.Count), resource.DecimalSI)
	} else {
		name, none, _ := strings.Cut(sandbox.NoGPUs, "=")
		c.Env = []corev1.EnvVar{{Name: name, Value: none}}
	}
	return c
}

func security(add []corev1.Capability) *corev1.SecurityContext {
	no := false
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, Privileged: &no,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
	}
}

var pullPolicies = map[sandbox.Pull]corev1.PullPolicy{
	sandbox.PullAlways: corev1.PullAlways, sandbox.PullNever: corev1.PullNever, sandbox.PullMissing: corev1.PullIfNotPresent,
}

// arguments returns the arguments of the server. Other Pods may reach its port and other
// users of the cluster may read the arguments, so they have only the hash of the ticket.
func arguments(s *sandbox.Spec, r *record) []string {
	ttl := s.TTL
	if r.Pool == "" { // until the claim, which sets the sandbox's own: its creator may die before
		ttl = startTime + recordTime
	}
	// The volume's limit is not that of the file system, which the server would see: a Pod that takes more is removed.
	contents := strconv.FormatInt(stateBytes.Value()/2, 10)
	return s.ServerArguments("0.0.0.0:"+strconv.Itoa(port), stateDir, userID(s, r.seed()), s.Idle,
		"--claim-hash", sandbox.TicketHash(r.Ticket), "--ttl", ttl.String(), "--changes-bytes", contents)
}

// notesOf returns the annotations of a Pod of an age, with the data of its sandbox.
func notesOf(s *sandbox.Spec, r *record, age time.Duration) map[string]string {
	all := map[string]string{
		noteName: r.Name, noteOwner: r.Owner, noteSpec: r.Spec,
		noteUser: s.User + ":" + strconv.Itoa(userID(s, r.seed())), noteImage: s.Image,
		noteEvict: strconv.FormatBool(r.Pool != ""), noteKeep: strconv.FormatBool(r.Pool == ""),
	}
	if r.Pool != "" {
		all[notePool] = r.Pool
	}
	if age != 0 {
		all[noteAge] = age.String()
	}
	if s.TTL > 0 {
		all[noteEnds] = (age + s.TTL).String()
	}
	if s.Idle > 0 {
		all[noteIdle] = s.Idle.String()
	}
	if s.AllowRoot {
		all[noteRoot] = "true"
	}
	if s.GPUs.Count > 0 {
		all[noteGPUs] = s.GPUs.String()
	}
	return all
}
