// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Cluster gives the commands access to a cluster with the user's rights.
type Cluster struct {
	// Namespace comes from the flags or the kubeconfig.
	Namespace string
	Objects   Objects
	Pods      Pods
	Server    Server
}

// Objects reads, watches and changes objects of the cluster.
type Objects interface {
	client.Reader
	Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error)
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
	Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error
	Status() client.SubResourceWriter
}

// Pods reaches pods through the API server.
type Pods interface {
	// Log streams a container's log.
	Log(ctx context.Context, pod types.NamespacedName, options *corev1.PodLogOptions) (io.ReadCloser, error)
	// Get sends a GET request for a path to a server in a pod.
	Get(ctx context.Context, pod types.NamespacedName, port int32, path string) ([]byte, error)
	// Forward returns a local address for a port of a pod. It works until the context ends.
	Forward(ctx context.Context, pod types.NamespacedName, port int32) (string, error)
}

// Time limits of single requests.
const (
	callLimit     = 15 * time.Second
	completeLimit = 2 * time.Second
)

// connection holds kubectl's flags for the cluster and the user.
type connection struct {
	world World
	flags *genericclioptions.ConfigFlags
}

// bind declares kubectl's connection flags and their shell completion.
func (c *connection) bind(cmd *cobra.Command, w World) {
	c.world = w
	all := genericclioptions.NewConfigFlags(true)
	c.flags = genericclioptions.NewConfigFlags(true)
	*c.flags = genericclioptions.ConfigFlags{
		KubeConfig: all.KubeConfig, Context: all.Context, Namespace: all.Namespace,
		Impersonate: all.Impersonate, ImpersonateGroup: all.ImpersonateGroup,
	}
	c.flags.AddFlags(cmd.Flags())
	cmd.ValidArgsFunction = c.completeNames
}

// open returns the cluster. It sends no request yet.
func (c *connection) open() (*Cluster, error) {
	if c.world.Cluster == nil {
		return nil, clusterError("no cluster is available here")
	}
	out, err := c.world.Cluster(c.flags, c.world.Err)
	switch {
	case err == nil:
		return out, nil
	case clientcmd.IsEmptyConfig(err):
		return nil, usageError("no cluster is configured: set KUBECONFIG, or pass --kubeconfig FILE")
	default:
		return nil, usageError("the kubeconfig has no usable cluster: %w", err)
	}
}

// workspace reads one Workspace.
func (c *Cluster) workspace(ctx context.Context, name string) (*v1beta1.Workspace, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ws := &v1beta1.Workspace{}
	at := types.NamespacedName{Namespace: c.Namespace, Name: name}
	if err := c.Objects.Get(ctx, at, ws); err != nil {
		return nil, worded(err, fmt.Sprintf("Workspace %s", at))
	}
	return ws, nil
}

// leader returns the StatefulSet of a Workspace's serving pods, or nil.
func (c *Cluster) leader(ctx context.Context, ws *v1beta1.Workspace) (*appsv1.StatefulSet, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	leader := &appsv1.StatefulSet{}
	err := c.Objects.Get(ctx, client.ObjectKeyFromObject(ws), leader)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, worded(err, "StatefulSet "+key(ws))
	}
	return leader, nil
}

// completeNames offers the names of Workspaces for the first argument.
func (c *connection) completeNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cluster, err := c.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeLimit)
	defer cancel()
	list := &v1beta1.WorkspaceList{}
	if err := cluster.Objects.List(ctx, list, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// worded explains an API server's error about an object, and adds the remedy.
func worded(err error, what string) error {
	var unreachable *url.Error
	switch {
	case apierrors.IsNotFound(err) && strings.HasPrefix(what, v1beta1.WorkspaceKind):
		return usageError("%s does not exist: list the Workspaces with kubectl berth status, or with kubectl berth status -A in all namespaces", what)
	case apierrors.IsNotFound(err):
		return usageError("%s does not exist", what)
	case meta.IsNoMatchError(err):
		return clusterError("%s: this cluster does not have this kind: install Modelberth's chart first", what)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return clusterError("%s: permission denied: %w", what, err)
	case apierrors.IsConflict(err):
		return clusterError("%s was changed by another client at the same time: try again", what)
	case apierrors.IsInvalid(err):
		return usageError("%s: the API server rejects the request: %w", what, err)
	case errors.Is(err, context.DeadlineExceeded):
		return clusterError("%s: the cluster did not answer in time: see kubectl cluster-info", what)
	case errors.As(err, &unreachable):
		return clusterError("%s: the cluster cannot be reached (%w): see kubectl cluster-info", what, unreachable.Err)
	default:
		return clusterError("%s: %w", what, err)
	}
}
