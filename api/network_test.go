package api_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestClaimNetwork(t *testing.T) {
	t.Parallel()
	const head = `{"key":"0123456789abcdef0123456789abcdef","network":`
	want := &api.ClaimNetwork{Egress: "unix:/run/actiond-egress/s", Env: api.Variables{"API_KEY": "actiond-secret-API"}}
	c, err := api.DecodeClaim([]byte(head + `{"egress":"unix:/run/actiond-egress/s","env":{"API_KEY":"actiond-secret-API"}}}`))
	if err != nil || !reflect.DeepEqual(c.Network, want) || c.Network.Socket() != "/run/actiond-egress/s" {
		t.Errorf("got %+v, %v", c.Network, err)
	}
	want = &api.ClaimNetwork{Egress: "[fd00::1]:3128", Token: "0123456789ab.00ff"}
	if c, err := api.DecodeClaim([]byte(head + `{"egress":"[fd00::1]:3128","token":"0123456789ab.00ff"}}`)); err != nil || !reflect.DeepEqual(c.Network, want) || c.Network.Socket() != "" {
		t.Errorf("got %+v, %v", c.Network, err)
	}
	if c, err := api.DecodeClaim([]byte(head + `null}`)); err != nil || c.Network != nil {
		t.Errorf("got %+v, %v", c.Network, err)
	}
	for sent, want := range map[string]string{
		`"unix:/s"`:                                "an object",
		`{}`:                                       "egress",
		`{"egress":""}`:                            "unix:",
		`{"egress":"/s"}`:                          "unix:",
		`{"egress":"unix:s"}`:                      "absolute",
		`{"egress":"unix:/s\u0000"}`:               "absolute",
		`{"egress":"10.0.0.1:3128"}`:               "unix:",
		`{"egress":"unix:/s","token":"a"}`:         "IP:PORT",
		`{"egress":"egress:3128","token":"a"}`:     "IP:PORT",
		`{"egress":"10.0.0.1:0","token":"a"}`:      "IP:PORT",
		`{"egress":"fe80::1%eth0:1","token":"a"}`:  "IP:PORT",
		`{"egress":"10.0.0.1:1","token":"a\r\nb"}`: "token must be",
		`{"egress":"10.0.0.1:1","token":"` + strings.Repeat("a", 257) + `"}`: "token must be",
		`{"egress":"unix:/s","mode":"public"}`:                               "mode",
		`{"egress":"unix:/s","env":{"1":"x"}}`:                               "no name of a variable",
		`{"egress":"unix:/s","env":{"SECRET":1}}`:                            "must be a string",
		`{"egress":"unix:/` + strings.Repeat("s", 107) + `"}`:                "absolute",
	} {
		if _, err := api.DecodeClaim([]byte(head + sent + `}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", sent, err, want)
		}
	}
}
