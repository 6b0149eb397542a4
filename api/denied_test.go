package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
)

// TestObservationNetwork: denials are beside the extras in every form, and come back; nothing is
// there without one.
func TestObservationNetwork(t *testing.T) {
	t.Parallel()
	n := &api.Network{Denied: []api.Denied{
		{Host: "evil.example", Port: 443, Reason: "not in the allow list", Count: 3, FirstMS: 12, Process: "pip"},
		{Host: "2001:db8::1", Port: 80, Reason: "private address", Count: 1},
	}, More: 2}
	const encoded = `"network":{"denied":[{"host":"evil.example","port":443,"reason":"not in the allow list","count":3,"first_ms":12,"process":"pip"},` +
		`{"host":"2001:db8::1","port":80,"reason":"private address","count":1,"first_ms":0}],"more":2,"attributed":false}`
	const line = "[network] blocked by policy: evil.example:443 (3×, not in the allow list); [2001:db8::1]:80 (private address); and 2 more"
	spec := contract.NewSpec(t)
	for _, o := range []api.Observation{
		api.RunObservation{Content: "out", Command: "x", Metadata: api.RunMetadata{PID: -1, Suffix: "\n[The command completed with exit code 0.]"}, Outcome: "succeeded"},
		api.ExecObservation{Content: "out", PID: new(1), ExitCode: new(0)},
		api.IPythonObservation{Content: "out", Code: "x", Outcome: "succeeded"},
		api.BrowseObservation{Content: "out", TriggerByAction: "browse", GoalImageURLs: []string{}, OpenPagesURLs: []string{}},
		api.DownloadObservation{Content: "out", FilePath: "/f"},
		api.MCPObservation{Content: "out", Name: "x"},
		api.ErrorObservation{Content: "out"},
	} {
		with := api.WithNetwork(o, n)
		if api.NetworkOf(o) != nil || api.NetworkOf(with) != n {
			t.Errorf("%s: got %+v", o.Kind(), with)
		}
		for form, encode := range map[string]func(api.Observation) ([]byte, error){"/v1/actions": api.EncodeObservation, "/execute_action": api.EncodeLegacy} {
			data, err := encode(with)
			if err != nil || !strings.HasSuffix(string(data), ","+encoded+"}") {
				t.Errorf("%s: got %s, %v", form, data, err)
				continue
			}
			if err := spec.CheckResponse("POST", form, 200, "application/json", data); err != nil {
				t.Errorf("%s: %v", form, err)
			}
			again, err := api.DecodeObservation(data)
			if err != nil || !reflect.DeepEqual(api.NetworkOf(again), n) {
				t.Errorf("%s: got %+v, %v", form, again, err)
			}
			if data, _ := encode(o); strings.Contains(string(data), `"network"`) {
				t.Errorf("%s: got %s", form, data)
			}
		}
		data, err := api.EncodeToolAnswer(api.ToolAnswer{Observation: with})
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.CheckResponse("POST", "/v1/tools/call", 200, "application/json", data); err != nil {
			t.Errorf("%s: %v", o.Kind(), err)
		}
		a, err := api.DecodeToolAnswer(data)
		if err != nil || !reflect.DeepEqual(api.NetworkOf(a.Observation), n) || !strings.HasSuffix(a.Text, "\n"+line) || !strings.HasPrefix(a.Text, "out") {
			t.Errorf("%s: got %+v, %v", o.Kind(), a, err)
		}
	}
	if text, _ := api.Text(api.WithNetwork(api.ErrorObservation{}, n)); text != line {
		t.Errorf("got %q", text)
	}
	if o := api.WithNetwork(api.ReadObservation{}, n); api.NetworkOf(o) != nil {
		t.Errorf("got %+v", o)
	}
}

func BenchmarkEncodeWithoutDenials(b *testing.B) {
	o := api.Observation(api.ExecObservation{Content: "out", PID: new(1), ExitCode: new(0)})
	b.ReportAllocs()
	for b.Loop() {
		if api.NetworkOf(o) != nil {
			b.Fatal("denials")
		}
	}
}
