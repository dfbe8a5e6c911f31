// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// side is a way to the engine.
type side struct {
	name, address string
	// pid of the process in between; 0 if there is none.
	pid    int
	client *http.Client
}

// nginxConfig and haproxyConfig keep connections to the engine open, buffer no stream and write no access log, as a
// front door of models would be set.
const (
	nginxConfig = `daemon off;
worker_processes auto;
worker_rlimit_nofile 20000;
pid DIRECTORY/nginx.pid;
error_log stderr error;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path DIRECTORY/body;
  proxy_temp_path DIRECTORY/proxy;
  fastcgi_temp_path DIRECTORY/fastcgi;
  uwsgi_temp_path DIRECTORY/uwsgi;
  scgi_temp_path DIRECTORY/scgi;
  client_max_body_size 32m;
  keepalive_requests 100000;
  upstream engine { server ENGINE; keepalive 256; }
  server {
    listen ADDRESS;
    location / {
      proxy_pass http://engine;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_request_buffering off;
    }
  }
}
`
	haproxyConfig = `global
  maxconn 8000
defaults
  mode http
  timeout connect 2s
  timeout client 30m
  timeout server 30m
  http-reuse always
frontend door
  bind ADDRESS
  default_backend engine
backend engine
  server engine ENGINE
`
)

// proxies are the others that requests may pass.
var proxies = []struct {
	program, config string
	args            func(config string) []string
}{
	{"nginx", nginxConfig, func(config string) []string { return []string{"-c", config, "-e", "stderr"} }},
	{"haproxy", haproxyConfig, func(config string) []string { return []string{"-db", "-f", config} }},
}

// startSides starts the engine and the proxies. The direct way is the first. Missing programs are left out. The result
// stops them all.
func startSides(ctx context.Context, directory string, out io.Writer) ([]*side, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	stop := func() {
		cancel()
		for _, command := range started {
			_ = command.Wait() // it was killed
		}
	}
	start := func(name string, args func(address string) ([]string, error)) (*side, error) {
		address, err := free(ctx)
		if err != nil {
			return nil, err
		}
		argv, err := args(address)
		if err != nil {
			return nil, err
		}
		command, err := launch(ctx, filepath.Join(directory, name+".log"), argv)
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", name, err)
		}
		started = append(started, command)
		return &side{name, address, command.Process.Pid, newClient()}, await(ctx, address)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	engine, err := start(roleEngine, func(address string) ([]string, error) { return []string{self, roleEngine, address}, nil })
	if err != nil {
		return nil, stop, err
	}
	sides := []*side{{"direct", engine.address, 0, engine.client}}
	router, err := start(roleRouter, func(address string) ([]string, error) {
		return []string{self, roleRouter, address, engine.address}, nil
	})
	if err != nil {
		return nil, stop, err
	}
	sides = append(sides, router)
	for _, proxy := range proxies {
		program, err := exec.LookPath(proxy.program)
		if err != nil {
			fmt.Fprintf(out, "%s is not installed: run hack/install-deps.sh bench-router\n", proxy.program)
			continue
		}
		found, err := start(proxy.program, func(address string) ([]string, error) {
			config := filepath.Join(directory, proxy.program+".conf")
			text := strings.NewReplacer("ADDRESS", address, "ENGINE", engine.address, "DIRECTORY", directory).Replace(proxy.config)
			return append([]string{program}, proxy.args(config)...), os.WriteFile(config, []byte(text), 0o600)
		})
		if err != nil {
			return nil, stop, err
		}
		sides = append(sides, found)
	}
	return sides, stop, nil
}

// launch starts a process with its output in a file. It ends with the context.
func launch(ctx context.Context, log string, argv []string) (*exec.Cmd, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Stdout, command.Stderr = file, file
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 5 * time.Second
	if err := command.Start(); err != nil {
		return nil, err
	}
	return command, nil
}

// free returns an unused address of this machine.
func free(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// await waits until an address accepts connections.
func await(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var dialer net.Dialer
	for {
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no process listens on %s", address), err)
		}
	}
}

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
}
