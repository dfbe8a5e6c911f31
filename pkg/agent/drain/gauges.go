// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxMetrics bounds the bytes read from an engine's metrics.
const maxMetrics = 16 << 20

// Source is the endpoint with an engine's gauges of running requests.
type Source struct {
	// URL of the engine's metrics, in Prometheus's text format.
	URL string
	// Key of the engine's clients; empty if it requires none.
	Key string
	// Gauges count the requests.
	Gauges []string
}

// Gauges returns a probe that sums the gauges of a source over all their labels. If the engine is unreachable, the
// probe returns ErrGone. If the engine lacks the gauges or refuses the key, it returns ErrUnreported.
func Gauges(client *http.Client, from Source) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.URL, http.NoBody)
		if err != nil {
			return false, fmt.Errorf("%w: %w", ErrGone, err)
		}
		if from.Key != "" {
			req.Header.Set("Authorization", "Bearer "+from.Key)
		}
		resp, err := client.Do(req)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return false, fmt.Errorf("%w: %w", ErrGone, err)
		}
		if err != nil {
			return false, err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return false, fmt.Errorf("%w: %s has status %d", ErrUnreported, from.URL, resp.StatusCode)
		}
		sum, found, err := sumOf(io.LimitReader(resp.Body, maxMetrics), from.Gauges)
		if err == nil && !found {
			return false, fmt.Errorf("%w: %s has none of the metrics %q", ErrUnreported, from.URL, from.Gauges)
		}
		return sum > 0, err
	}
}

// sumOf reads lines of the form NAME{LABELS} VALUE [TIMESTAMP]. Prometheus's own parser would make the agent
// twice as large.
func sumOf(metrics io.Reader, names []string) (sum float64, found bool, err error) {
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value := sample(lines.Text())
		if !slices.Contains(names, name) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, true, fmt.Errorf("gauge %s: %w", name, err)
		}
		sum, found = sum+v, true
	}
	return sum, found, lines.Err()
}

func sample(line string) (name, value string) {
	end := strings.IndexAny(line, "{ \t")
	if end < 0 || strings.HasPrefix(line, "#") {
		return "", ""
	}
	name, rest := line[:end], line[end:]
	if line[end] == '{' {
		// A label's value may contain a brace, but the part after the labels does not.
		rest = line[strings.LastIndexByte(line, '}')+1:]
	}
	if fields := strings.Fields(rest); len(fields) > 0 {
		return name, fields[0]
	}
	return name, ""
}
