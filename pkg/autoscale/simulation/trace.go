// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation replays a trace of requests with replicas that a rule scales. The rule is package autoscale, a
// simpler one, or a search that sees the whole trace.
//
// It models an engine by its predicted speed and a replica by its start-up time. It must not know where these figures
// come from. The same arguments give the same result.
package simulation

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is one request of a trace.
type Request struct {
	// At is the time from the start of the trace, in seconds.
	At float64
	// Input and Output are numbers of tokens.
	Input, Output int
}

// Limits of a trace.
const (
	mostRequests = 5_000_000
	mostSeconds  = 31 * 24 * 3600
	mostTokens   = 10_000_000
)

// columns returns the names of the columns in published traces: time, input and output.
func columns() [3][]string {
	return [3][]string{
		{"time", "at", "timestamp", "arrived_at", "seconds"},
		{"input", "input_tokens", "contexttokens", "request tokens", "prompt_tokens", "input_length"},
		{"output", "output_tokens", "generatedtokens", "response tokens", "completion_tokens", "output_length"},
	}
}

// ReadTrace reads a CSV file with a header. Times are seconds or dates; the first request is at zero. ReadTrace leaves
// out requests without an answer.
func ReadTrace(from io.Reader) ([]Request, error) {
	reader := csv.NewReader(bufio.NewReader(from))
	reader.ReuseRecord = true
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("reading the header: %w", noEOF(err))
	}
	at, err := indices(header)
	if err != nil {
		return nil, err
	}
	var out []Request
	for {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := reader.FieldPos(0)
		request, err := parseRequest(record, at)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if request.Output == 0 {
			continue
		}
		if out = append(out, request); len(out) > mostRequests {
			return nil, fmt.Errorf("the trace has more than %d requests: shorten the trace", mostRequests)
		}
	}
	return normalized(out)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty")
	}
	return err
}

func indices(header []string) (out [3]int, err error) {
	for i, names := range columns() {
		out[i] = slices.IndexFunc(header, func(name string) bool {
			return slices.Contains(names, strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))))
		})
		if out[i] < 0 {
			return out, fmt.Errorf("the header %q has no column %s (or %s)",
				strings.Join(header, ","), names[0], strings.Join(names[1:], ", "))
		}
	}
	return out, nil
}

func parseRequest(record []string, at [3]int) (Request, error) {
	seconds, err := parseTime(strings.TrimSpace(record[at[0]]))
	if err != nil {
		return Request{}, err
	}
	input, err := parseTokens(record[at[1]])
	if err != nil {
		return Request{}, err
	}
	output, err := parseTokens(record[at[2]])
	if err != nil {
		return Request{}, err
	}
	return Request{At: seconds, Input: max(input, 1), Output: output}, nil
}

func parseTime(text string) (float64, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) > 1e12 {
			return 0, fmt.Errorf("%q is not a time", text)
		}
		return seconds, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			return float64(at.UnixNano()) / 1e9, nil
		}
	}
	return 0, fmt.Errorf("%q is neither a number of seconds nor a date such as 2024-05-10 00:00:00", text)
}

func parseTokens(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 0 || n > mostTokens {
		return 0, fmt.Errorf("%q is not a number of tokens from 0 to %d", text, mostTokens)
	}
	return n, nil
}

// normalized sorts the requests and shifts their times so that the first is zero.
func normalized(requests []Request) ([]Request, error) {
	if len(requests) == 0 {
		return nil, errors.New("the trace has no request with output tokens")
	}
	slices.SortStableFunc(requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	first := requests[0].At
	for i := range requests {
		requests[i].At -= first
	}
	if last := requests[len(requests)-1].At; last > mostSeconds {
		return nil, fmt.Errorf("the trace lasts %.0f days, which is more than %d: shorten the trace", last/86400, mostSeconds/86400)
	}
	return requests, nil
}

// Mean returns a request with the mean lengths of a trace.
func Mean(trace []Request) Request {
	var input, output int
	for _, r := range trace {
		input += r.Input
		output += r.Output
	}
	n := max(len(trace), 1)
	return Request{Input: input / n, Output: output / n}
}
