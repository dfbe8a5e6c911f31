// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	benchFiles       = 2
	benchFileBytes   = int64(256) << 20
	benchConnections = 8
	benchRounds      = 3
)

// loopbackHub serves large files from the disk at this machine's speed, and counts its bytes.
type loopbackHub struct {
	*httptest.Server
	dir  string
	sums map[string]string
	sent atomic.Int64
	// pause is the pause after each pausedBytes of a connection. It makes the hub slower than the disk, as real hubs
	// are.
	pause time.Duration
}

const pausedBytes = 256 << 10

func newLoopbackHub(b *testing.B, pause time.Duration) *loopbackHub {
	b.Helper()
	h := &loopbackHub{dir: b.TempDir(), sums: map[string]string{}, pause: pause}
	for _, name := range h.names() {
		f, err := os.Create(filepath.Join(h.dir, name))
		if err != nil {
			b.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.CopyN(io.MultiWriter(f, sum), rand.NewChaCha8([32]byte{name[9]}), benchFileBytes); err != nil {
			b.Fatal(err)
		}
		h.sums[name] = hex.EncodeToString(sum.Sum(nil))
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	b.Cleanup(h.Close)
	return h
}

func (h *loopbackHub) names() []string {
	var names []string
	for i := range benchFiles {
		names = append(names, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, benchFiles))
	}
	return names
}

func (h *loopbackHub) url(name string) string {
	return h.URL + "/" + testRepo + "/resolve/" + testCommit + "/" + name
}

func (h *loopbackHub) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		fmt.Fprintf(w, `{"sha":%q}`, testCommit)
		return
	}
	name := filepath.Base(r.URL.Path)
	f, err := os.Open(filepath.Join(h.dir, name))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("X-Repo-Commit", testCommit)
	w.Header().Set("X-Linked-Etag", `"`+h.sums[name]+`"`)
	w.Header().Set("X-Linked-Size", fmt.Sprint(info.Size()))
	http.ServeContent(sendingWriter{w, h}, r, "", info.ModTime(), f)
}

// sendingWriter counts bytes, and lets the kernel copy from the file to the socket.
type sendingWriter struct {
	http.ResponseWriter
	hub *loopbackHub
}

func (w sendingWriter) ReadFrom(from io.Reader) (sum int64, err error) {
	for {
		n, err := io.CopyN(w.ResponseWriter, from, pausedBytes)
		w.hub.sent.Add(n)
		sum += n
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		time.Sleep(w.hub.pause)
	}
}

// begin starts the program on all files.
func (h *loopbackHub) begin(b *testing.B, dir string) *process {
	b.Helper()
	args := []string{"--endpoint", h.URL, "--connections", fmt.Sprint(benchConnections)}
	for _, name := range h.names() {
		args = append(args, "--file", name)
	}
	return start(b, dir, args...)
}

// finish waits until all files are there, and returns the peak of the program's memory.
func (p *process) finish(b *testing.B) (peak float64) {
	b.Helper()
	waitUntil(b, "all files are there", func() bool { return strings.Contains(p.text(), "all files are in place") })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(line, "%f kB", &peak); err != nil {
		b.Fatalf("peak of memory: %v", err)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if code := p.exitCode(b); code != 0 {
		b.Fatalf("exit code %d:\n%s", code, p.text())
	}
	return peak / 1024
}

func (h *loopbackHub) byAgent(b *testing.B) (took time.Duration, peak float64) {
	b.Helper()
	dir := volumeDir(b)
	defer discard(b, dir)
	began := time.Now()
	p := h.begin(b, dir)
	waitUntil(b, "all files are there", func() bool { return strings.Contains(p.text(), "all files are in place") })
	took = time.Since(began)
	return took, p.finish(b)
}

// discard deletes the files and syncs the disk, so that the next run does not wait for it.
func discard(b *testing.B, dir string) {
	b.Helper()
	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}
	syscall.Sync()
}

// byCurl fetches the agent's ranges with as many connections, and then verifies the files.
func (h *loopbackHub) byCurl(b *testing.B) (fetched, verified time.Duration) {
	b.Helper()
	dir := b.TempDir()
	defer discard(b, dir)
	args := []string{"--parallel", "--parallel-immediate", "--parallel-max", fmt.Sprint(benchConnections)}
	var sums strings.Builder
	for _, name := range h.names() {
		fmt.Fprint(&sums, "cat")
		for _, r := range ranges(nil).missing(benchFileBytes, pieceBytes(benchFileBytes)) {
			part := fmt.Sprintf("%s/%s.%d", dir, name, r.Start)
			args = append(args, "--silent", "--show-error", "--fail",
				"--range", fmt.Sprintf("%d-%d", r.Start, r.End-1), "--output", part, h.url(name), "--next")
			fmt.Fprint(&sums, " ", part)
		}
		fmt.Fprintf(&sums, " | sha256sum | grep -q %s\n", h.sums[name])
	}
	began := time.Now()
	if out, err := exec.CommandContext(b.Context(), "curl", args[:len(args)-1]...).CombinedOutput(); err != nil {
		b.Fatalf("curl: %v: %s", err, out)
	}
	fetched = time.Since(began)
	if out, err := exec.CommandContext(b.Context(), "sh", "-ec", sums.String()).CombinedOutput(); err != nil {
		b.Fatalf("sha256sum: %v: %s", err, out)
	}
	return fetched, time.Since(began)
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// noted returns the number of bytes that the records keep for a restart.
func (h *loopbackHub) noted(dir string) (n int64) {
	for _, name := range h.names() {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			n += info.Size()
		} else {
			n += noted(filepath.Join(dir, name))
		}
	}
	return n
}

const total = benchFiles * benchFileBytes

// BenchmarkWeights compares a fetch with curl for the same ranges, both onto this machine's disk. They alternate,
// because the load of the machine varies. The agent verifies its files, so it also compares with curl followed by
// sha256sum. One hub has a speed limit, and the other is as fast as this machine can serve.
func BenchmarkWeights(b *testing.B) {
	if _, err := exec.LookPath("curl"); err != nil {
		b.Skip("curl is not installed, and there is nothing to compare with")
	}
	for _, hub := range []struct {
		name  string
		pause time.Duration
	}{{"hub=200MBps", 10 * time.Millisecond}, {"hub=unlimited", 0}} {
		b.Run(hub.name, func(b *testing.B) {
			h := newLoopbackHub(b, hub.pause)
			var rates, ratios, verified, peaks []float64
			for b.Loop() {
				for range benchRounds {
					curl, curlVerified := h.byCurl(b)
					took, peak := h.byAgent(b)
					rates = append(rates, float64(total)/took.Seconds())
					ratios = append(ratios, 100*curl.Seconds()/took.Seconds())
					verified = append(verified, 100*curlVerified.Seconds()/took.Seconds())
					peaks = append(peaks, peak)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(rates)/1e6, "MB/s")
			b.ReportMetric(median(ratios), "%-of-curl")
			b.ReportMetric(median(verified), "%-of-curl+sha256sum")
			b.ReportMetric(median(peaks), "MiB-peak")
		})
	}
}

// BenchmarkWeightsResume measures the cost of a kill half-way: the bytes that the hub sends twice, including bytes in
// the sockets at that moment.
func BenchmarkWeightsResume(b *testing.B) {
	h := newLoopbackHub(b, 20*time.Millisecond)
	var losses []float64
	for b.Loop() {
		for range benchRounds {
			h.sent.Store(0)
			dir := volumeDir(b)
			p := h.begin(b, dir)
			waitUntil(b, "half is there", func() bool { return h.noted(dir) >= total/2 })
			if err := p.Process.Kill(); err != nil {
				b.Fatal(err)
			}
			_ = p.exitCode(b)
			h.begin(b, dir).finish(b)
			losses = append(losses, 100*float64(h.sent.Load()-total)/float64(total))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(losses), "%-twice")
}
