// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/test/localcloud/cloud"
	"github.com/modelberth/modelberth/test/localcloud/layout"
	"github.com/modelberth/modelberth/test/localcloud/registry"
	"github.com/modelberth/modelberth/test/localcloud/supervisor"
)

// pushDeadline bounds the copying of one image.
const pushDeadline = 5 * time.Minute

func newStatusCommand(state *stateFlag) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show components, machines and nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			status, err := askStatus(cmd.Context(), cloud.NewClient(l.Socket()))
			if err != nil {
				return fmt.Errorf("no cloud answers in %s (start one with up): %w", l.Root, err)
			}
			switch output {
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(status)
			case "":
				return printStatus(cmd.OutOrStdout(), status, time.Now())
			}
			return fmt.Errorf("--output %q is unknown: use json or leave it out", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or nothing for a table")
	return cmd
}

func printStatus(out io.Writer, s supervisor.Status, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "stage\t%s\n", strings.TrimSpace(s.Stage+" "+s.Waiting))
	fmt.Fprintf(table, "kubeconfig\t%s\n", s.Kubeconfig)
	fmt.Fprintf(table, "api server\t%s\n\n", s.APIServer)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tSINCE\tRESTARTS")
	for _, c := range s.Components {
		state := "running"
		if !c.Running {
			state = "ended: " + c.LastExit
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\n", c.Name, state, c.PID, age(now, c.Since), c.Restarts)
	}
	fmt.Fprintln(table, "\nMACHINE\tNODE\tSKU\tZONE\tCAPACITY\tSTATE\tNODE STATE\tADDRESS\tAGE")
	for _, m := range s.Machines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			m.ID, m.Name, orDash(m.SKU), orDash(m.Zone), orDash(m.CapacityType), m.State, orDash(m.Node), m.Network.Address, age(now, m.Created))
	}
	return table.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func age(now, then time.Time) string { return now.Sub(then).Truncate(time.Second).String() }

func newKubeconfigCommand(state *stateFlag) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			if _, err := os.Stat(l.Kubeconfig()); err != nil {
				return fmt.Errorf("no cloud is up in %s (start one with up): %w", l.Root, err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), l.Kubeconfig())
			return err
		},
	}
}

func newPushCommand(state *stateFlag) *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "push FILE...",
		Short: "Put images from files into the cloud's registry",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			if as != "" && len(args) > 1 {
				return errors.New("--as names one image: push the files one by one")
			}
			for _, path := range args {
				if err := push(cmd.Context(), l, path, as, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "reference to push under, instead of the one in the file")
	return cmd
}

func push(ctx context.Context, l layout.Layout, path, as string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, pushDeadline)
	defer cancel()
	references, err := registry.Push(ctx, cloud.UnixTransport(l.Socket()), path, as)
	for _, reference := range references {
		fmt.Fprintln(out, reference)
	}
	return err
}

func newLogsCommand(state *stateFlag) *cobra.Command {
	return &cobra.Command{
		Use:   "logs COMPONENT",
		Short: "Print the log of a component, or of a node's as NODE/COMPONENT",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := state.layout()
			if err != nil {
				return err
			}
			f, err := openLog(l, args[0])
			if err != nil {
				return fmt.Errorf("no log of %q (there are %s): %w", args[0], strings.Join(logNames(l), ", "), err)
			}
			defer func() { _ = f.Close() }()
			_, err = io.Copy(cmd.OutOrStdout(), f)
			return err
		},
	}
}

// openLog opens the log of a component, also of a former node.
func openLog(l layout.Layout, component string) (*os.File, error) {
	f, err := os.Open(l.Log(component))
	if node, name := path.Split(component); os.IsNotExist(err) && node != "" {
		return os.Open(filepath.Join(l.EndedNodeLogs(path.Clean(node)), name+".log"))
	}
	return f, err
}

// logNames lists the logs.
func logNames(l layout.Layout) []string {
	var names []string
	for _, place := range []struct{ dir, pattern string }{
		{l.Logs(), "*.log"}, {l.Nodes(), "*/logs/*.log"}, {l.Logs(), layout.EndedPrefix + "*/*.log"},
	} {
		paths, err := filepath.Glob(filepath.Join(place.dir, place.pattern))
		if err != nil {
			continue
		}
		for _, file := range paths {
			name := strings.TrimSuffix(strings.TrimPrefix(file, place.dir+"/"), ".log")
			name = strings.TrimPrefix(name, layout.EndedPrefix)
			names = append(names, strings.Replace(name, "/logs/", "/", 1))
		}
	}
	return names
}
