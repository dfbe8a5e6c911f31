// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/cost"
)

// ledgerSource is the ledger to read: the copy in one namespace, or the controller's ledger of all namespaces.
type ledgerSource struct {
	inNamespace, ledger string
	all                 bool
}

func (l *ledgerSource) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.inNamespace, "ledger-namespace", "",
		"with -A: the controller's namespace; default: the namespace of the cluster's only ledger")
	f.StringVar(&l.ledger, "ledger-name", "", "with -A: the controller's --cost-name, if the namespace has several ledgers")
	f.BoolVarP(&l.all, "all-namespaces", "A", false, "read the ledger of all namespaces")
}

func (l *ledgerSource) check() error {
	if (l.inNamespace != "" || l.ledger != "") && !l.all {
		return usageError("--ledger-namespace and --ledger-name need -A")
	}
	return nil
}

// read returns the ledger of one namespace or of all.
func (l *ledgerSource) read(ctx context.Context, cluster *Cluster) (*cost.Ledger, error) {
	if !l.all {
		stored := &corev1.ConfigMap{}
		at := types.NamespacedName{Namespace: cluster.Namespace, Name: v1beta1.CostConfigMap}
		err := cluster.Objects.Get(ctx, at, stored)
		if apierrors.IsNotFound(err) {
			return nil, clusterError("namespace %s has no recorded costs: either no machine was bought for it, or the administrator has not "+
				"set the chart's values cost.enabled and cost.publish", at.Namespace)
		}
		if err != nil {
			return nil, worded(err, "ConfigMap "+at.String())
		}
		return decodeCost(stored)
	}
	stored, err := l.shards(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var parts []*cost.Ledger
	for _, shard := range stored {
		part, err := decodeCost(shard)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, clusterError("there is no cost ledger: either no machine was bought, or the chart's value cost.enabled is not set")
	}
	return cost.Join(parts...), nil
}

// shards returns the ConfigMaps of one ledger. Anyone with the right to write ConfigMaps in some namespace can forge a
// ledger. So the command never adds up two ledgers, and does not guess which ledger is genuine.
func (l *ledgerSource) shards(ctx context.Context, cluster *Cluster) ([]*corev1.ConfigMap, error) {
	list := &corev1.ConfigMapList{}
	if err := cluster.Objects.List(ctx, list, client.InNamespace(l.inNamespace), client.HasLabels{v1beta1.LabelCost}); err != nil {
		return nil, worded(err, "ConfigMaps")
	}
	var out []*corev1.ConfigMap
	var ledgers []string
	for i := range list.Items {
		stored := &list.Items[i]
		name := stored.Labels[v1beta1.LabelCost]
		if !isShard(stored.Name, name) || l.ledger != "" && name != l.ledger {
			continue
		}
		out = append(out, stored)
		if ledger := stored.Namespace + "/" + name; !slices.Contains(ledgers, ledger) {
			ledgers = append(ledgers, ledger)
		}
	}
	if len(ledgers) > 1 {
		slices.Sort(ledgers)
		return nil, clusterError("the cluster has several cost ledgers (%s): choose the controller's namespace with --ledger-namespace, "+
			"and the ledger in it with --ledger-name", strings.Join(ledgers, ", "))
	}
	return out, nil
}

// isShard reports whether a ConfigMap has the name of a part of a ledger.
func isShard(name, ledger string) bool {
	for i := range cost.Shards {
		if name == ledger+"-"+strconv.Itoa(i) {
			return true
		}
	}
	return false
}

func decodeCost(stored *corev1.ConfigMap) (*cost.Ledger, error) {
	ledger, err := cost.Decode([]byte(stored.Data[v1beta1.CostLedgerKey]))
	if err != nil {
		return nil, clusterError("ConfigMap %s cannot be read: %w: see docs/cost.md", key(stored), err)
	}
	return ledger, nil
}
