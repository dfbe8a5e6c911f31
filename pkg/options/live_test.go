// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"

	"github.com/modelberth/modelberth/pkg/options"
)

func TestParseLive(t *testing.T) {
	defaults := options.Spending{
		PerWorkspace: options.DefaultPerWorkspace, PerNamespace: options.DefaultPerNamespace, Cluster: options.DefaultCluster,
	}
	with := func(change func(*options.Live)) *options.Live {
		out := &options.Live{Spending: defaults}
		change(out)
		return out
	}
	tests := []struct {
		reason string
		data   map[string]string
		want   *options.Live
		err    string
	}{
		{reason: "an absent key has the flag's default", want: with(func(*options.Live) {})},
		{
			reason: "every key", data: map[string]string{
				"spending-per-workspace": "1.5", "spending-per-namespace": "2", "spending-cluster": " 3\n", "spending-unlimited": "true",
				"default-max-hourly-price": "4", "allow-instance-type": "Standard_NC*\n g6.* \n", "zap-log-level": "debug",
			},
			want: &options.Live{LogLevel: zapcore.DebugLevel, Spending: options.Spending{
				PerWorkspace: 1.5, PerNamespace: 2, Cluster: 3, Unlimited: true, DefaultMaxHourlyPrice: 4, InstanceTypes: []string{"Standard_NC*", "g6.*"},
			}},
		},
		{reason: "no machine type means all of them", data: map[string]string{"allow-instance-type": ""}, want: with(func(*options.Live) {})},
		{
			reason: "a number as log level", data: map[string]string{"zap-log-level": "3"},
			want: with(func(l *options.Live) { l.LogLevel = zapcore.Level(-3) }),
		},
		{
			reason: "every problem is named, with its key and value", data: map[string]string{
				"spending-cluster": "0", "spending-per-workspace": "much", "allow-instance-type": "[a", "spending-unlimited": "never",
				"default-max-hourly-price": "1e999", "zap-log-level": "loud",
			},
			err: `allow-instance-type is "[a": it must be a machine type, or a pattern such as Standard_NC*; ` +
				`default-max-hourly-price is "1e999": it must be a number in USD per hour, such as 98.5; ` +
				`spending-per-workspace is "much": it must be a number in USD per hour, such as 98.5; ` +
				`spending-unlimited is "never": it must be true or false; zap-log-level is "loud": it must be error, info, debug or a number above 0; ` +
				`--spending-cluster is 0: it must be a price above 0 in USD per hour; --spending-unlimited lifts all ceilings`,
		},
		{
			reason: "an empty ceiling is none of the defaults", data: map[string]string{"spending-cluster": ""},
			err: `spending-cluster is empty: set a value, or remove the key to use the default`,
		},
		{
			reason: "two ceilings", data: map[string]string{"spending-cluster": "1\n2"},
			err: `spending-cluster is "1\n2": it must be one value on one line`,
		},
		{
			reason: "a flag that the controller reads only at its start", data: map[string]string{"workers": "3"},
			err: "workers cannot change while the controller runs: remove the key, and set the chart's value or the flag; the keys are allow-instance-type, " +
				"default-max-hourly-price, spending-cluster, spending-per-namespace, spending-per-workspace, spending-unlimited, zap-log-level",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			got, err := options.ParseLive(test.data)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLiveFlagsHaveOneSource: a flag of the ConfigMap on the command line would be ignored, so it is refused.
func TestLiveFlagsHaveOneSource(t *testing.T) {
	const configMap = "--settings-config-map=modelberth-system/modelberth-settings"
	tests := []struct {
		reason string
		args   []string
		want   string
	}{
		{"flags alone", []string{"--spending-cluster=5"}, ""},
		{"the ConfigMap alone", []string{configMap, "--workers=3"}, ""},
		{
			"both",
			[]string{configMap, "--spending-unlimited", "--spending-cluster=5"},
			"--spending-cluster, --spending-unlimited and --settings-config-map cannot be combined: set them in ConfigMap modelberth-system/modelberth-settings",
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			var o options.Controller
			flags := flag.NewFlagSet("", flag.ContinueOnError)
			o.Bind(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := o.CheckLive(flags); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("\n got %q\nwant %q", got, test.want)
			}
		})
	}
}

// TestEffective: a support bundle shows what the controller uses, and nothing else that somebody wrote into the ConfigMap.
func TestEffective(t *testing.T) {
	const refused = " (not in use: the ConfigMap has a mistake, and the controller keeps its former settings)"
	valid := map[string]string{"spending-cluster": " 1200\n", "allow-instance-type": "Standard_NC*\ng6.*"}
	if diff := cmp.Diff(map[string]string{
		"allow-instance-type": "Standard_NC* g6.*", "default-max-hourly-price": "0 (default)", "spending-cluster": "1200",
		"spending-per-namespace": "300 (default)", "spending-per-workspace": "150 (default)", "spending-unlimited": "false (default)",
		"zap-log-level": "info (default)",
	}, options.Effective(valid)); diff != "" {
		t.Errorf("valid settings (-want +got):\n%s", diff)
	}
	// One mistake makes the controller keep all former values.
	got := options.Effective(map[string]string{
		"spending-cluster": " 1200\n", "spending-unlimited": "LEAK1", "spending-per-workspace": "-1", "allow-instance-type": "Standard_NC*\ng6.*",
		"api-token": "LEAK2",
	})
	want := map[string]string{
		"allow-instance-type": "Standard_NC* g6.*" + refused, "default-max-hourly-price": "0 (default)" + refused,
		"spending-cluster": "1200" + refused, "spending-per-namespace": "300 (default)" + refused,
		"spending-per-workspace": "… (invalid)" + refused, "spending-unlimited": "… (invalid)" + refused,
		"zap-log-level": "info (default)" + refused, "api-token": "… (no setting)" + refused,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all := options.Effective(nil)["allow-instance-type"]
	if all != "all (default)" || options.Effective(map[string]string{"allow-instance-type": ""})["allow-instance-type"] != "all" {
		t.Errorf("without a machine type, %q are allowed", all)
	}
}
