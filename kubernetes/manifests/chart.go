package manifests

import (
	"fmt"
	"strconv"
	"strings"
)

// File is a file of the chart. Name is its path below the chart's directory.
type File struct {
	Name string
	Data []byte
}

// replacement makes a place of the base a template. The old text must be there exactly
// once, so that a change of the base does not silently lose a value.
type replacement struct{ file, old, new string }

var replacements = []replacement{
	{"quota.yaml", "count/pods: 1000\n", "count/pods: {{ .Values.maxPods }}\n"},
	{egressFile, "kind: Namespace\nmetadata:\n  name: actiond-egress\n", "kind: Namespace\nmetadata:\n  name: {{ printf \"%s-egress\" .Release.Namespace | quote }}\n"},
	{egressFile, "image: actiond-server:dev\n", "image: {{ .Values.image | quote }}\n"},
	{"gateway.yaml", "replicas: 2\n", "replicas: {{ .Values.replicas }}\n"},
	{"gateway.yaml", "image: actiond-server:dev #", "image: {{ .Values.image | quote }} #"},
	{"gateway.yaml", "- --key-secret=actiond-gateway-key\n", `- {{ printf "--key-secret=%s" .Values.keySecret | quote }}
{{- range .Values.serveFlags }}
        - {{ . | quote }}
{{- end }}
`},
	{"gateway.yaml", "value: 450MiB\n", `value: {{ .Values.goMemoryLimit | quote }}
{{- range .Values.env }}
        - {{ toJson . }}
{{- end }}
`},
	{"gateway.yaml", "            drop: [ALL]\n", "            drop: [ALL]\n" + given("        volumeMounts", "volumeMounts") + given("      volumes", "volumes")},
	{"gateway.yaml", "      serviceAccountName: actiond-gateway\n", "      serviceAccountName: actiond-gateway\n" +
		given("      imagePullSecrets", "imagePullSecrets") + given("      nodeSelector", "nodeSelector") + given("      tolerations", "tolerations")},
	{"gateway.yaml", "        actiond.dev/component: gateway\n      annotations:\n", "        actiond.dev/component: gateway\n" + entries("podLabels") + "      annotations:\n" + entries("podAnnotations")},
	{egressFile, "      serviceAccountName: actiond-egress\n", "      serviceAccountName: actiond-egress\n" +
		given("      imagePullSecrets", "imagePullSecrets") + given("      nodeSelector", "egressNodeSelector") + given("      tolerations", "egressTolerations")},
	{egressFile, "value: 96MiB\n", "value: {{ .Values.egressGoMemoryLimit | quote }}\n"},
	{egressFile, "cpu: 50m\n", "cpu: {{ .Values.egressResources.requests.cpu | quote }}\n"},
	{egressFile, "memory: 64Mi\n", "memory: {{ .Values.egressResources.requests.memory | quote }}\n"},
	{egressFile, "cpu: \"2\"\n", "cpu: {{ .Values.egressResources.limits.cpu | quote }}\n"},
	{egressFile, "memory: 128Mi\n", "memory: {{ .Values.egressResources.limits.memory | quote }}\n"},
	{"gateway.yaml", "cpu: 100m\n", "cpu: {{ .Values.resources.requests.cpu | quote }}\n"},
	{"gateway.yaml", "memory: 128Mi\n", "memory: {{ .Values.resources.requests.memory | quote }}\n"},
	{"gateway.yaml", "cpu: \"2\"\n", "cpu: {{ .Values.resources.limits.cpu | quote }}\n"},
	{"gateway.yaml", "memory: 512Mi\n", "memory: {{ .Values.resources.limits.memory | quote }}\n"},
}

// given is the text of a field that is there where its value is given.
func given(field, value string) string {
	return "{{- with .Values." + value + " }}\n" + field + ": {{ toJson . }}\n{{- end }}\n"
}

// entries is the text of the entries of a value in a mapping.
func entries(value string) string {
	return "{{- range $name, $text := .Values." + value + " }}\n        {{ $name | quote }}: {{ $text | quote }}\n{{- end }}\n"
}

const ofBase = "namespace: actiond\n"

// ofRelease names the namespaces of a release.
var ofRelease = strings.NewReplacer(
	ofBase, "namespace: {{ .Release.Namespace | quote }}\n",
	"namespace: actiond-egress\n", "namespace: {{ printf \"%s-egress\" .Release.Namespace | quote }}\n",
	"kubernetes.io/metadata.name: actiond\n", "kubernetes.io/metadata.name: {{ .Release.Namespace | quote }}\n",
	"kubernetes.io/metadata.name: actiond-egress\n",
	"kubernetes.io/metadata.name: {{ printf \"%s-egress\" .Release.Namespace | quote }}\n",
)

const chartYAML = `apiVersion: v2
name: actiond
description: A gateway that runs the sandboxes of AI agents as Pods of its namespace
type: application
version: %s
appVersion: %s
kubeVersion: ">=1.30.0-0"
`

const valuesYAML = `# The gateway, which also brings the server into sandboxes. Push the image of the
# release to a registry that the nodes reach.
image: %s
replicas: 2
# The gateway makes its key once and keeps it in this Secret, unless the Secret exists.
# The key is its field "key".
keySecret: actiond-gateway-key
# More flags of 'runtimectl serve', such as --ttl=1h or --max-sandboxes=200.
serveFlags: []
resources:
  requests:
    cpu: 100m
    memory: 128Mi
  limits:
    cpu: "2"
    memory: 512Mi
# A little less than the limit of memory.
goMemoryLimit: 450MiB
# The gateway's Pods, for example variables and volumes for the serve flag --secret. Pull secrets are the
# egress proxy's too; for those of sandboxes add the serve flag --image-pull-secret.
env: []
volumes: []
volumeMounts: []
imagePullSecrets: []
nodeSelector: {}
tolerations: []
podLabels: {}
podAnnotations: {}
# Let evictions, as of 'kubectl drain', wait until sandboxes have ended.
protectSandboxes: true
# The most Pods there may be in the namespace: gateways, sandboxes and those kept ready.
maxPods: 1000
# The egress proxy for sandboxes with network policies, in a namespace of its own, whose
# name ends in -egress.
egress: true
egressNodeSelector: {}
egressTolerations: []
# The limit of memory decides how many connections all sandboxes may have: 128Mi 1,024, 512Mi 4,804.
egressResources:
  requests:
    cpu: 50m
    memory: 64Mi
  limits:
    cpu: "2"
    memory: 128Mi
egressGoMemoryLimit: 96MiB
`

const notes = `The gateway answers at http://actiond-gateway.{{ .Release.Namespace }}.svc:8700. Its key:

  kubectl --namespace {{ .Release.Namespace }} get secret {{ .Values.keySecret }} --output jsonpath='{.data.key}' | base64 --decode

The namespace is to refuse privileged Pods:

  kubectl label namespace {{ .Release.Namespace }} pod-security.kubernetes.io/enforce=baseline
`

// Chart returns a Helm chart of the objects of [Gateway] but the gateway's namespace, which is
// that of Helm's release. The version of the chart is version without the letter v, and image
// is the default of its value.
func Chart(version, image string) ([]File, error) {
	files := []File{
		{"Chart.yaml", fmt.Appendf(nil, chartYAML, strings.TrimPrefix(version, "v"), version)},
		{"values.yaml", fmt.Appendf(nil, valuesYAML, strconv.Quote(image))},
		{"templates/NOTES.txt", []byte(notes)},
	}
	base, err := baseFiles()
	if err != nil {
		return nil, err
	}
	for _, name := range base {
		if name == "namespace.yaml" {
			continue
		}
		text, err := template(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{"templates/" + name, []byte(text)})
	}
	return files, nil
}

// template makes a template of a file of the base.
func template(name string) (string, error) {
	data, err := base.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading the manifests: %w", err)
	}
	text := string(data)
	if strings.Contains(text, "{{") || !strings.Contains(text, ofBase) {
		return "", fmt.Errorf("making the chart: %s has a template's text, or not the line %q", name, ofBase)
	}
	text = ofRelease.Replace(text)
	for _, r := range replacements {
		if r.file != name {
			continue
		}
		if n := strings.Count(text, r.old); n != 1 {
			return "", fmt.Errorf("making the chart: %s has %d times %q, and must have it once", name, n, r.old)
		}
		text = strings.Replace(text, r.old, r.new, 1)
	}
	switch name {
	case "sandboxes.yaml":
		text = "{{- if .Values.protectSandboxes }}\n" + text + "{{- end }}\n"
	case egressFile:
		text = "{{- if .Values.egress }}\n" + text + "{{- end }}\n"
	}
	return text, nil
}
