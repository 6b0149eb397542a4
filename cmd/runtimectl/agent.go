package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/docker"
)

// agent is what package docker says to the server in a sandbox.
type agent struct{}

var _ docker.Agent = agent{}

// Ready runs a command in the default shell.
func (agent) Ready(ctx context.Context, dial docker.DialFunc, key string) error {
	c, err := clientOver(dial, key)
	if err != nil {
		return err
	}
	defer c.Close()
	o, err := c.Do(ctx, api.Request{Action: api.RunAction{Command: "true", Blocking: true}})
	if err != nil {
		return err
	}
	if run, ok := o.(api.RunObservation); !ok || run.Metadata.ExitCode != 0 {
		return fmt.Errorf("the first command did not succeed: %s", clean(content(o)))
	}
	return nil
}

// Claim is not known to servers yet.
func (agent) Claim(context.Context, docker.DialFunc, docker.Claim) error {
	return errors.New("this server cannot be claimed")
}

// Status asks when the last action was. A session that is busy has one running.
func (agent) Status(ctx context.Context, dial docker.DialFunc, key string) (docker.Status, error) {
	c, err := clientOver(dial, key)
	if err != nil {
		return docker.Status{}, err
	}
	defer c.Close()
	info, err := c.ServerInfo(ctx)
	if err != nil {
		return docker.Status{}, err
	}
	sessions, err := c.Sessions(ctx)
	if err != nil {
		return docker.Status{}, err
	}
	s := docker.Status{Claimed: true, Since: time.Now().Add(-time.Duration(info.IdleTime * float64(time.Second)))}
	for _, session := range sessions {
		s.Busy = s.Busy || session.State == "busy"
	}
	return s, nil
}

// clientOver is a client whose connections dial opens. Its Close drops them.
func clientOver(dial docker.DialFunc, key string) (*client.Client, error) {
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
		IdleConnTimeout:    90 * time.Second,
	}
	return client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: transport}})
}
