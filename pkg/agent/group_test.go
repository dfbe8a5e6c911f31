// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// Two pods of a group run as real processes. One has nothing to fetch and is killed, and the other reports that in
// time.
func TestMemberIsKilled(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a": noise(1000)})
	worker := startPod(t, volumeDir(t), "--group", "3")
	where := worker.address(t)
	waitUntil(t, "it is ready, with nothing to fetch", func() bool { return status(t, where+"/startupz") == http.StatusOK })
	leader := start(t, volumeDir(t), "--endpoint", h.URL, "--group", "3", "--peer", strings.TrimPrefix(where, "http://"), "--file", "a")
	waitUntil(t, "they have met", func() bool { return strings.Contains(leader.text(), "reached a member") })
	killed := time.Now()
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.exitCode(t)
	if code := leader.exitCode(t); code != 1 {
		t.Errorf("exit code %d, want 1:\n%s", code, leader.text())
	}
	t.Logf("noticed after %s", time.Since(killed).Round(time.Millisecond))
	data, err := os.ReadFile(leader.dir + "/../log")
	if err != nil {
		t.Fatal(err)
	}
	var got Termination
	if err := json.Unmarshal(data, &got); err != nil || got.Reason != ReasonMemberLost {
		t.Errorf("termination message %s, want reason %s", data, ReasonMemberLost)
	}
}

// A leader has a running request, and a worker follows the leader. Neither ends before the request is finished.
func TestGroupDrainsTogether(t *testing.T) {
	requests := make(chan int, 1)
	requests <- 1
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := <-requests
		requests <- n
		_, _ = w.Write([]byte("busy " + strings.Repeat("1", n) + "0\n"))
	}))
	defer engine.Close()
	leader := startPod(t, volumeDir(t), "--group", "1", "--drain-metrics", engine.URL, "--drain-busy", "busy", "--drain-settle", "1s")
	leads := leader.address(t)
	worker := startPod(t, volumeDir(t), "--group", "1", "--drain-leader", strings.TrimPrefix(leads, "http://"), "--drain-settle", "1s")
	follows := worker.address(t)
	drained := make(chan string, 2)
	for _, url := range []string{leads, follows} {
		go func() {
			if status(t, url+"/drain") == http.StatusOK {
				drained <- url
			}
		}()
	}
	select {
	case url := <-drained:
		t.Errorf("%s drained while a request was under way", url)
	case <-time.After(3 * time.Second):
	}
	<-requests
	requests <- 0
	for range 2 {
		select {
		case <-drained:
		case <-time.After(20 * time.Second):
			t.Fatalf("not drained:\n%s\n%s", leader.text(), worker.text())
		}
	}
	end(t, leader)
	end(t, worker)
}

func TestTwoTargets(t *testing.T) {
	h := newFakeHub(t, map[string][]byte{"a": noise(1000), "b": noise(2000)})
	dir := volumeDir(t)
	p := startPod(t, dir, "--endpoint", h.URL, "fetch", "--repo", testRepo, "--file", "a", "--dest", dir,
		"fetch", "--for", "one", "--repo", testRepo, "--file", "b", "--dest", dir+"/adapters/one")
	address := p.address(t)
	waitUntil(t, "both are ready", func() bool { return status(t, address+"/startupz") == http.StatusOK })
	for name, want := range map[string]string{"a": "a", "adapters/one/b": "b"} {
		if got, err := os.ReadFile(dir + "/" + name); err != nil || !bytes.Equal(got, h.files[want]) {
			t.Errorf("content of %s differs (%v)", name, err)
		}
	}
	end(t, p)
}
