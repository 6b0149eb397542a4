package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/actiond/actiond/kubernetes/manifests"
)

const chartImage = "registry.example/actiond-server:v1.2.3"

// chart is the chart by names of files.
func chart(t *testing.T) map[string]string {
	t.Helper()
	files, err := manifests.Chart("v1.2.3", chartImage)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range files {
		texts[f.Name] = string(f.Data)
	}
	return texts
}

// rendered are the objects of the chart as Helm would render them, by kind and name.
// Its templates use nothing of Helm but the functions quote and toJson.
func rendered(t *testing.T, namespace string, change func(values map[string]any)) map[string]any {
	t.Helper()
	texts := chart(t)
	var values map[string]any
	if err := yaml.Unmarshal([]byte(texts["values.yaml"]), &values); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(values)
	}
	var out bytes.Buffer
	for name, text := range texts {
		if !strings.HasPrefix(name, "templates/") {
			continue
		}
		parsed, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"quote": strconv.Quote, "toJson": toJSON}).Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var one bytes.Buffer
		if err := parsed.Execute(&one, map[string]any{"Values": values, "Release": map[string]any{"Namespace": namespace}}); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".yaml") {
			out.WriteString("\n---\n" + one.String())
		}
	}
	return byName(t, out.String())
}

// toJSON is Helm's function.
func toJSON(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// byName are YAML documents by kind and name.
func byName(t *testing.T, text string) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if object == nil {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		kind, _ := object["kind"].(string)
		objects[kind+" "+name] = object
	}
	return objects
}

// compareWith reports how the chart's objects differ from those that are printed with
// the same options.
func compareWith(t *testing.T, got map[string]any, o manifests.Options) {
	t.Helper()
	text, err := manifests.Gateway(o)
	if err != nil {
		t.Fatal(err)
	}
	want := byName(t, string(text))
	delete(want, "Namespace "+o.Namespace) // it is Helm's
	for name := range want {
		a, b := encoded(t, got[name]), encoded(t, want[name])
		if a != b {
			t.Errorf("%s: got\n%s\nwant\n%s", name, a, b)
		}
		delete(got, name)
	}
	if len(got) > 0 || len(want) < 9 {
		t.Errorf("the chart also has %v; %d are printed", got, len(want))
	}
}

func encoded(t *testing.T, object any) string {
	t.Helper()
	text, err := json.MarshalIndent(object, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The chart has the objects that are printed, with its defaults and with values.
func TestChartIsTheManifests(t *testing.T) {
	t.Parallel()
	compareWith(t, rendered(t, "actiond", nil), manifests.Options{Namespace: "actiond", Image: chartImage})
	compareWith(t, rendered(t, "agents", nil), manifests.Options{Namespace: "agents", Image: chartImage})
	replicas := 5
	compareWith(t, rendered(t, "123", func(values map[string]any) {
		values["replicas"], values["image"], values["egress"] = replicas, "other:2", false
	}), manifests.Options{Namespace: "123", Image: "other:2", Replicas: &replicas, NoEgress: true})
}

// Each value changes its place and no other.
func TestChartValues(t *testing.T) {
	t.Parallel()
	objects := rendered(t, "actiond", func(values map[string]any) {
		values["keySecret"], values["serveFlags"], values["maxPods"] = "other-key", []any{"--ttl=1h", `--label=a="b"`}, 7
		values["resources"] = map[string]any{"requests": map[string]any{"cpu": "1", "memory": "2Gi"}, "limits": map[string]any{"cpu": "3", "memory": "4Gi"}}
		values["goMemoryLimit"] = "3GiB"
	})
	var d appsv1.Deployment
	var q corev1.ResourceQuota
	for name, object := range map[string]any{"Deployment actiond-gateway": &d, "ResourceQuota actiond": &q} {
		if err := json.Unmarshal([]byte(encoded(t, objects[name])), object); err != nil {
			t.Fatal(err)
		}
	}
	c := d.Spec.Template.Spec.Containers[0]
	if want := []string{"serve", "--addr=:8700", "--metrics-addr=:8701", "--key-secret=other-key", "--ttl=1h", `--label=a="b"`}; !slices.Equal(c.Args, want) {
		t.Errorf("got arguments %q, want %q", c.Args, want)
	}
	requests, limits := c.Resources.Requests, c.Resources.Limits
	if requests.Cpu().String() != "1" || requests.Memory().String() != "2Gi" || limits.Cpu().String() != "3" || limits.Memory().String() != "4Gi" || c.Env[1].Value != "3GiB" {
		t.Errorf("got %+v, %+v", c.Resources, c.Env)
	}
	if pods := q.Spec.Hard["count/pods"]; pods.Value() != 7 {
		t.Errorf("got %v", q.Spec)
	}
}

// The values for Pods are in the Deployments, and evictions may be left to the cluster.
func TestChartPods(t *testing.T) {
	t.Parallel()
	objects := rendered(t, "actiond", func(values map[string]any) {
		for name, text := range map[string]string{
			"env": `[{name: TOKEN, valueFrom: {secretKeyRef: {name: tokens, key: api}}}]`, "volumes": `[{name: keys, secret: {secretName: keys}}]`,
			"volumeMounts": `[{name: keys, mountPath: /keys}]`, "imagePullSecrets": `[{name: registry}]`, "nodeSelector": `{pool: system}`,
			"tolerations": `[{key: system, operator: Exists}]`, "podLabels": `{team: "1"}`, "podAnnotations": `{a.example/b: "true"}`, "protectSandboxes": "false",
			"egressNodeSelector": `{pool: edge}`, "egressTolerations": `[{key: edge, operator: Exists}]`, "egressGoMemoryLimit": "1GiB",
			"egressResources": `{requests: {cpu: "1", memory: 1Gi}, limits: {cpu: "3", memory: 2Gi}}`,
		} {
			var value any
			if err := yaml.Unmarshal([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			values[name] = value
		}
	})
	var gateway, egress appsv1.Deployment
	for name, object := range map[string]any{"Deployment actiond-gateway": &gateway, "Deployment actiond-egress": &egress} {
		if err := json.Unmarshal([]byte(encoded(t, objects[name])), object); err != nil {
			t.Fatal(err)
		}
	}
	pod, c := gateway.Spec.Template, gateway.Spec.Template.Spec.Containers[0]
	if c.Env[2].ValueFrom.SecretKeyRef.Name != "tokens" || pod.Spec.Volumes[0].Secret.SecretName != "keys" || c.VolumeMounts[0].MountPath != "/keys" ||
		pod.Spec.ImagePullSecrets[0].Name != "registry" || pod.Spec.NodeSelector["pool"] != "system" || pod.Spec.Tolerations[0].Key != "system" ||
		pod.Labels["team"] != "1" || pod.Labels["actiond.dev/component"] != "gateway" || pod.Annotations["a.example/b"] != "true" || pod.Annotations["prometheus.io/port"] != "8701" {
		t.Errorf("the gateway: %s", encoded(t, pod))
	}
	pod, c = egress.Spec.Template, egress.Spec.Template.Spec.Containers[0]
	if pod.Spec.NodeSelector["pool"] != "edge" || pod.Spec.Tolerations[0].Key != "edge" || pod.Spec.ImagePullSecrets[0].Name != "registry" ||
		c.Resources.Requests.Cpu().String() != "1" || c.Resources.Requests.Memory().String() != "1Gi" || c.Resources.Limits.Cpu().String() != "3" || c.Resources.Limits.Memory().String() != "2Gi" ||
		!strings.Contains(encoded(t, c.Env), `"1GiB"`) {
		t.Errorf("the egress proxy: %s", encoded(t, pod))
	}
	if objects["PodDisruptionBudget actiond-sandboxes"] != nil || objects["PodDisruptionBudget actiond-gateway"] == nil {
		t.Error("the budgets do not follow protectSandboxes")
	}
}
