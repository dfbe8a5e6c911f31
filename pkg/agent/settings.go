// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/hub"
)

// Defaults of the flags.
const (
	defaultRevision       = "main"
	defaultDest           = "/models"
	defaultListen         = ":8090"
	defaultTerminationLog = "/dev/termination-log"
	defaultGiveUpAfter    = 60 * time.Second
	defaultConnections    = 8
	maxConnections        = 64
	maxPath               = 1024
)

// Settings are the flags and environment of one fetch, checked.
type Settings struct {
	Endpoint, Token string
	Repo, Revision  string
	Files           []string
	Selection       Selection
	SHA256          map[string]hub.Digest
	Dest, Listen    string
	TerminationLog  string
	GiveUpAfter     time.Duration
	Connections     int
}

// ParseFetch reads the arguments after "fetch". The token comes from the
// environment only, because arguments are visible to everybody on the machine.
func ParseFetch(args []string, getenv func(string) string, usage io.Writer) (Settings, error) {
	s := Settings{SHA256: map[string]hub.Digest{}, Token: strings.TrimSpace(getenv("HF_TOKEN"))}
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&s.Endpoint, "endpoint", getenv("HF_ENDPOINT"), "hub to fetch from; default HF_ENDPOINT or "+hub.DefaultEndpoint)
	flags.StringVar(&s.Repo, "repo", "", "repository, ORG/NAME")
	flags.StringVar(&s.Revision, "revision", defaultRevision, "branch, tag or commit")
	flags.StringVar(&s.Dest, "dest", defaultDest, "directory that receives the files")
	flags.StringVar(&s.Listen, "listen", defaultListen, "address of /startupz, /healthz and /progress")
	flags.StringVar(&s.TerminationLog, "termination-log", defaultTerminationLog, "file that receives the reason for giving up")
	flags.DurationVar(&s.GiveUpAfter, "give-up-after", defaultGiveUpAfter, "time without any progress after which to give up")
	flags.IntVar(&s.Connections, "connections", defaultConnections, "requests to have under way at once")
	flags.Func("file", "`PATH` of a file in the repository; repeat for more", func(v string) error {
		s.Files = append(s.Files, v)
		return nil
	})
	s.Selection.define(flags)
	flags.Func("sha256", "`PATH=HEX`: expected checksum of a file, instead of the hub's; repeat for more", s.addSHA256)
	if err := flags.Parse(args); err != nil {
		return Settings{}, err
	}
	if flags.NArg() > 0 {
		return Settings{}, fmt.Errorf("argument %q is not understood: every value belongs to a flag", flags.Arg(0))
	}
	if err := s.check(); err != nil {
		return Settings{}, err
	}
	return s, nil
}

func (s *Settings) addSHA256(v string) error {
	at := strings.LastIndex(v, "=")
	if at < 0 {
		return fmt.Errorf("%q is not of the form PATH=HEX", v)
	}
	d, err := hub.ParseSHA256(v[at+1:])
	if err != nil {
		return err
	}
	s.SHA256[v[:at]] = d
	return nil
}

func (s *Settings) check() error {
	if err := checkRepo(s.Repo); err != nil {
		return err
	}
	if err := checkRevision(s.Revision); err != nil {
		return err
	}
	if err := s.checkWanted(); err != nil {
		return err
	}
	if s.Connections < 1 || s.Connections > maxConnections {
		return fmt.Errorf("--connections is %d: give a number from 1 to %d", s.Connections, maxConnections)
	}
	if s.GiveUpAfter <= 0 {
		return fmt.Errorf("--give-up-after is %s: give a positive duration", s.GiveUpAfter)
	}
	if s.Dest == "" {
		return errors.New("--dest is empty: name a directory")
	}
	return nil
}

// define adds the flags that select files by patterns.
func (s *Selection) define(flags *flag.FlagSet) {
	for _, f := range []struct {
		name, usage string
		into        *[]string
	}{
		{"weights", "`PATTERN` of files of the repository, at least one of which must exist; instead of --file; repeat for more", &s.Weights},
		{"include", "`PATTERN` of further files, none of which need exist; repeat for more", &s.Include},
		{"exclude", "`PATTERN` of files to leave out; repeat for more", &s.Exclude},
	} {
		flags.Func(f.name, f.usage, func(v string) error {
			if _, err := path.Match(v, ""); err != nil || v == "" {
				return fmt.Errorf("%q is not a pattern such as *.safetensors", v)
			}
			*f.into = append(*f.into, v)
			return nil
		})
	}
}

// checkWanted sees to it that files are either named or selected.
func (s *Settings) checkWanted() error {
	switch {
	case s.Selection.isEmpty():
		return checkFiles(s.Files, s.SHA256)
	case len(s.Files)+len(s.SHA256) > 0:
		return errors.New("--weights, --include and --exclude select files of the whole repository: do not name files with --file and --sha256 too")
	case len(s.Selection.Weights) == 0:
		return errors.New("--weights is missing: give a pattern such as *.safetensors")
	}
	return nil
}

func checkRepo(repo string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?$`).MatchString(repo) {
		return fmt.Errorf("--repo is %q: give ORG/NAME", repo)
	}
	return nil
}

func checkRevision(revision string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9_][\w./+-]*$`).MatchString(revision) || strings.Contains(revision, "..") {
		return fmt.Errorf("--revision is %q: give a branch, tag or commit", revision)
	}
	return nil
}

func checkFiles(files []string, sums map[string]hub.Digest) error {
	if len(files) == 0 {
		return errors.New("--file is missing: name at least one file of the repository, or select files with --weights")
	}
	known := map[string]bool{}
	for _, f := range files {
		if err := CheckPath(f); err != nil {
			return err
		}
		if known[f] {
			return fmt.Errorf("--file %q is given twice", f)
		}
		known[f] = true
	}
	for f := range sums {
		if !known[f] {
			return fmt.Errorf("--sha256 names %q, which no --file does", f)
		}
	}
	return nil
}

// CheckPath refuses names that lead out of the volume, that mean another file
// than they say, or that the agent needs for itself.
func CheckPath(p string) error {
	switch {
	case p == "" || len(p) > maxPath:
		return fmt.Errorf("--file %q is empty or longer than %d bytes", p, maxPath)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }):
		return fmt.Errorf("--file %q has a backslash or a control character: give a path with slashes", p)
	case !filepath.IsLocal(p) || path.Clean(p) != p || p == ".":
		return fmt.Errorf("--file %q is not a plain relative path: give one without \".\", \"..\" and a leading or double slash", p)
	}
	for _, suffix := range []string{partialSuffix, stateSuffix, markerSuffix, newSuffix, listingName} {
		if strings.HasSuffix(p, suffix) {
			return fmt.Errorf("--file %q ends in %q, which the agent keeps for itself", p, suffix)
		}
	}
	return nil
}
