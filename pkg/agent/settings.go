// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/agent/oci"
	"github.com/modelberth/modelberth/pkg/hub"
)

// Defaults of the flags.
const (
	defaultListen         = ":8090"
	defaultTerminationLog = "/dev/termination-log"
	defaultConnections    = 8
	maxConnections        = 64
	defaultSettle         = 5 * time.Second
	defaultDrainTimeout   = 100 * time.Second
	// The agent unpacks larger artifacts only if a flag allows it.
	defaultUnpackGiB     = 100
	defaultUnpackEntries = 100_000
)

// Settings are the flags and environment of the agent, checked.
type Settings struct {
	Endpoint, Token string
	// KeptCommit is the earlier result of resolving the revision; empty if there is none.
	KeptCommit string
	// CAFile holds certificates of authorities that the agent trusts besides the system's.
	CAFile string
	// Cache is a directory shared by pods; empty for none.
	Cache string
	// CacheDirectory is a directory to create in the cache for the engine; empty for none.
	CacheDirectory string
	CacheLimit     int64
	// CacheVerifyWhole makes the agent hash a whole file of the cache at each use, instead of a sample.
	CacheVerifyWhole bool
	// Unpack limits the archives of one artifact.
	Unpack         oci.Limits
	Listen         string
	TerminationLog string
	GiveUpAfter    time.Duration
	Connections    int
	Group          Group
	Drain          Drain
	Live           Live
	Targets        []Target
}

// Group has the other pods that serve the model with this one.
type Group struct {
	// ID of this pod's incarnation.
	ID     string
	Number int64
	// Peers are the members as HOST:PORT. This pod may be among them.
	Peers []string
	// Await are addresses of members, as HOST:PORT, that must listen before the engine of this pod starts. NotBefore is
	// the earliest start of the engine.
	Await     []string
	NotBefore time.Time
	// ProbeListen is an address that returns the pod's identity to any client; empty for none.
	ProbeListen string
	// HoldFile holds the controller's result on the group's isolation. The engine waits while it is empty or has
	// HoldValue. Without HoldFile, it does not wait.
	HoldFile, HoldValue string
}

// Drain has the settings for the end of the engine's requests.
type Drain struct {
	// Metrics is the URL of the engine's metrics. Busy are the gauges of its requests.
	Metrics string
	Busy    []string
	// Key of the engine's clients; empty if it requires none.
	Key string
	// Leader is the group's leader as HOST:PORT. This pod's engine runs until the leader's drain is over.
	Leader          string
	Settle, Timeout time.Duration
}

// Parse reads the arguments: first the flags of the pod, then a verb with flags of its own for each target. Secrets
// come only from the environment, because everybody on the machine can read arguments.
func Parse(args []string, getenv func(string) string, usage io.Writer) (Settings, error) {
	s := Settings{
		Token: strings.TrimSpace(getenv("HF_TOKEN")), KeptCommit: getenv("KEPT_COMMIT"),
		Group: Group{ID: getenv("POD_UID")}, Drain: Drain{Key: getenv("API_KEY")},
	}
	flags := flag.NewFlagSet("modelberth-agent", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.Usage = func() {
		fmt.Fprintln(usage, usageText)
		flags.PrintDefaults()
	}
	flags.StringVar(&s.Endpoint, "endpoint", getenv("HF_ENDPOINT"), "hub to fetch from; default HF_ENDPOINT or "+hub.DefaultEndpoint)
	flags.StringVar(&s.CAFile, "ca-file", "", "PEM file with additional certificate authorities")
	flags.StringVar(&s.Cache, "cache", "", "cache that pods share, mounted at the same path for the engine; the files in --dest are links into it")
	flags.StringVar(&s.CacheDirectory, "cache-directory", "", "directory to create in the cache, for the engine's compiled code")
	flags.Func("cache-limit-gib", "size limit of the cache, `N` GiB; default: the size of the cache's volume", s.setCacheLimit)
	flags.BoolVar(&s.CacheVerifyWhole, "cache-verify-whole", false, "hash each cached file completely at each use, instead of a sample")
	s.Unpack = oci.Limits{Bytes: defaultUnpackGiB << 30, Entries: defaultUnpackEntries}
	unpack := fmt.Sprintf("limit of the archives of one artifact, `N` GiB (default %d)", defaultUnpackGiB)
	flags.Func("unpack-limit-gib", unpack, func(v string) (err error) {
		s.Unpack.Bytes, err = parseGiB(v)
		return err
	})
	flags.IntVar(&s.Unpack.Entries, "unpack-limit-entries", defaultUnpackEntries, "limit of files and directories in the archives of one artifact")
	flags.StringVar(&s.Listen, "listen", defaultListen, "address on which the agent serves HTTP")
	flags.StringVar(&s.TerminationLog, "termination-log", defaultTerminationLog, "file into which the agent writes the reason of a failure")
	flags.DurationVar(&s.GiveUpAfter, "give-up-after", fetch.GiveUpAfter, "time without progress after which the agent fails")
	flags.IntVar(&s.Connections, "connections", defaultConnections, "number of simultaneous requests")
	s.Group.define(flags)
	s.Drain.define(flags)
	s.Live.define(flags)
	if err := flags.Parse(args); err != nil {
		return Settings{}, err
	}
	if err := s.check(); err != nil {
		return Settings{}, err
	}
	for rest := flags.Args(); len(rest) > 0; {
		t, after, err := parseTarget(rest, usage)
		if err != nil {
			return Settings{}, err
		}
		s.Targets, rest = append(s.Targets, t), after
	}
	return s, checkTargets(s.Targets)
}

// resolves reports whether the agent only resolves the revision of its target and fetches nothing.
func (s *Settings) resolves() bool { return len(s.Targets) == 1 && s.Targets[0].Resolves }

func (s *Settings) setCacheLimit(v string) (err error) {
	s.CacheLimit, err = parseGiB(v)
	return err
}

// parseGiB returns a number of bytes.
func parseGiB(v string) (int64, error) {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a number of GiB: give 1 or more", v)
	}
	return n << 30, nil
}

func (g *Group) define(flags *flag.FlagSet) {
	flags.Int64Var(&g.Number, "group", 0, "number of the pod's group; members with another number are ignored")
	flags.Func("peer", "`HOST[:PORT]` of a member of the group; repeat it for every member, this pod included", appendTo(&g.Peers))
	flags.Func("await", "`HOST:PORT` of a member that must listen before the engine starts; repeatable", func(v string) error {
		if _, _, err := net.SplitHostPort(v); err != nil {
			return fmt.Errorf("%q is not of the form HOST:PORT", v)
		}
		g.Await = append(g.Await, v)
		return nil
	})
	flags.StringVar(&g.ProbeListen, "probe-listen", "", "address on which the agent returns the name of its pod to any client")
	flags.Func("hold-while", "`FILE=VALUE`: the engine does not start while the file is missing, empty or has this value", func(v string) error {
		file, value, ok := strings.Cut(v, "=")
		if !ok || !filepath.IsAbs(file) || value == "" {
			return fmt.Errorf("%q is not of the form /FILE=VALUE", v)
		}
		g.HoldFile, g.HoldValue = file, value
		return nil
	})
	flags.Func("not-before", "earliest `TIME` for the start of the engine, as 2006-01-02T15:04:05Z; empty means any", func(v string) error {
		if v == "" {
			return nil
		}
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return fmt.Errorf("%q is not a time such as 2006-01-02T15:04:05Z", v)
		}
		g.NotBefore = at
		return nil
	})
}

func (d *Drain) define(flags *flag.FlagSet) {
	flags.StringVar(&d.Metrics, "drain-metrics", "", "URL of the engine's metrics, with the number of running requests")
	flags.Func("drain-busy", "`NAME` of a gauge of running requests in --drain-metrics; repeatable", appendTo(&d.Busy))
	flags.StringVar(&d.Leader, "drain-leader", "", "`HOST[:PORT]` of the group's leader: this pod drains until the leader has drained; instead of --drain-metrics")
	flags.DurationVar(&d.Settle, "drain-settle", defaultSettle, "time for which requests may still arrive after the pod begins to terminate")
	flags.DurationVar(&d.Timeout, "drain-timeout", defaultDrainTimeout, "longest time to wait for running requests, including --drain-settle")
}

func appendTo(list *[]string) func(string) error {
	return func(v string) error {
		if v == "" {
			return errors.New("it is empty")
		}
		*list = append(*list, v)
		return nil
	}
}

func (s *Settings) check() error {
	switch {
	case s.Cache != "" && !filepath.IsAbs(s.Cache):
		return fmt.Errorf("--cache is %q: give an absolute path, because the files in --dest are links into the cache", s.Cache)
	case s.Cache == "" && s.CacheLimit != 0:
		return errors.New("--cache-limit-gib has no effect without --cache: name a directory")
	case s.CacheDirectory != "" && (s.Cache == "" || !filepath.IsLocal(s.CacheDirectory)):
		return fmt.Errorf("--cache-directory is %q: give a path within the directory of --cache", s.CacheDirectory)
	case s.Connections < 1 || s.Connections > maxConnections:
		return fmt.Errorf("--connections is %d: give a number from 1 to %d", s.Connections, maxConnections)
	case s.Unpack.Entries < 1:
		return fmt.Errorf("--unpack-limit-entries is %d: give 1 or more", s.Unpack.Entries)
	case s.GiveUpAfter <= 0:
		return fmt.Errorf("--give-up-after is %s: give a positive duration", s.GiveUpAfter)
	case len(s.Group.Peers) > 0 && s.Group.ID == "":
		return errors.New("--peer needs the pod's UID: set POD_UID to metadata.uid")
	}
	if err := errors.Join(s.Drain.check(), s.Live.check()); err != nil {
		return err
	}
	return s.completeHosts()
}

func (d *Drain) check() error {
	switch {
	case d.Leader != "" && d.Metrics != "":
		return errors.New("--drain-leader and --drain-metrics cannot be combined: name one of them")
	case (d.Metrics == "") != (len(d.Busy) == 0):
		return errors.New("--drain-metrics and --drain-busy need each other: name both or neither")
	case d.Timeout < 0 || d.Settle < 0:
		return errors.New("--drain-settle and --drain-timeout cannot be negative")
	}
	return nil
}

// completeHosts adds this pod's port to members without a port.
func (s *Settings) completeHosts() error {
	_, port, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return fmt.Errorf("--listen is %q: give [HOST]:PORT", s.Listen)
	}
	for i, peer := range s.Group.Peers {
		s.Group.Peers[i] = withPort(peer, port)
	}
	if s.Drain.Leader != "" {
		s.Drain.Leader = withPort(s.Drain.Leader, port)
	}
	return nil
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(host, port)
}
