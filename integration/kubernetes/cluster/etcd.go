package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcd serves a store in a directory until a signal ends it. It does not sync:
// the data of a test need not outlive the machine.
func etcd(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("want DIRECTORY CLIENT-URL PEER-URL, got %q", args)
	}
	client, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	peer, err := url.Parse(args[2])
	if err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Dir = args[0]
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	store, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer store.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-signals:
		return nil
	case err := <-store.Err():
		return err
	}
}
