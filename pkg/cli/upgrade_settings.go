// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/pkg/doctor"
	"github.com/modelberth/modelberth/pkg/evidence"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/planning"
)

// installedPlans plan with the settings of the installed controller. Flags replace them.
type installedPlans struct {
	planOptions

	// file is a rendered chart with the settings. Empty means the installed controller in the cluster.
	file       string
	controller string
	// limits are the controller's limits for one Workspace.
	limits planning.Limits
}

func (u *installedPlans) bind(cmd *cobra.Command, w World) {
	cmd.Flags().StringVar(&u.controller, "controller", "",
		"Deployment of the controller as NAMESPACE/NAME, if the cluster has several")
	u.planOptions.bind(cmd, w)
}

// installation is a controller as its Deployment runs it.
type installation struct {
	name types.NamespacedName
	// args are the values of its flags, in order.
	args map[string][]string
	// files are the names of ConfigMaps by mount directory.
	files map[string]string
}

// installationOf reads a Deployment; nil if it does not run a controller.
func installationOf(deployment *appsv1.Deployment) *installation {
	pod := &deployment.Spec.Template.Spec
	for i := range pod.Containers {
		args := argsOf(pod.Containers[i].Args)
		if _, isController := args["agent-image"]; !isController {
			continue
		}
		out := &installation{name: client.ObjectKeyFromObject(deployment), args: args, files: map[string]string{}}
		for _, mount := range pod.Containers[i].VolumeMounts {
			for _, volume := range pod.Volumes {
				if volume.Name == mount.Name && volume.ConfigMap != nil {
					out.files[mount.MountPath] = volume.ConfigMap.Name
				}
			}
		}
		return out
	}
	return nil
}

// argsOf parses flags in the form of the chart: --name=value or --name.
func argsOf(args []string) map[string][]string {
	out := map[string][]string{}
	for _, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !hasValue {
			value = "true"
		}
		out[name] = append(out[name], value)
	}
	return out
}

// last returns the effective value of a flag, which is its last one; empty if unset.
func (i *installation) last(flag string) string {
	if values := i.args[flag]; len(values) > 0 {
		return values[len(values)-1]
	}
	return ""
}

// installed returns the controller of the rendered chart, or else of the cluster; nil if there is none.
func (u *installedPlans) installed(
	ctx context.Context, cluster *Cluster, rendered []unstructured.Unstructured, notes *[]string,
) (*installation, error) {
	found, err := u.inChart(rendered)
	if len(rendered) == 0 {
		found, err = u.inCluster(ctx, cluster, notes)
	}
	if err != nil {
		return nil, err
	}
	if u.controller != "" {
		found = slices.DeleteFunc(found, func(one *installation) bool { return one.name.String() != u.controller })
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && u.controller != "":
		return nil, usageError("--controller: there is no controller %s", u.controller)
	case len(found) == 0:
		return nil, nil
	default:
		return nil, usageError("the cluster has several controllers: name one with --controller: %s", orList(namesOf(found)))
	}
}

// inChart returns the controllers of the rendered chart.
func (u *installedPlans) inChart(rendered []unstructured.Unstructured) ([]*installation, error) {
	var all []appsv1.Deployment
	for i := range rendered {
		if rendered[i].GetKind() != "Deployment" {
			continue
		}
		deployment := appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(rendered[i].Object, &deployment); err != nil {
			return nil, usageError("-f %s: Deployment %s: %w", u.file, rendered[i].GetName(), err)
		}
		all = append(all, deployment)
	}
	return installationsOf(all), nil
}

// inCluster returns the controllers of the cluster, as the doctor chooses them, and adds a note about each other Deployment
// that looks like one. --controller may name any of them.
func (u *installedPlans) inCluster(ctx context.Context, cluster *Cluster, notes *[]string) ([]*installation, error) {
	seen, err := cluster.controllers(ctx)
	if err != nil {
		return nil, err
	}
	choice := seen.Choice()
	if u.controller != "" {
		return installationsOf(slices.Concat(choice.Installed, choice.Alike)), nil
	}
	chosen := installationsOf(choice.Controllers())
	if len(choice.Installed) > 0 {
		for _, other := range installationsOf(choice.Alike) {
			*notes = append(*notes, fmt.Sprintf("Deployment %s is not used: %s", other.name, doctor.NotBound))
		}
	}
	return chosen, nil
}

// installationsOf reads the Deployments that run a controller.
func installationsOf(deployments []appsv1.Deployment) []*installation {
	var out []*installation
	for i := range deployments {
		if one := installationOf(&deployments[i]); one != nil {
			out = append(out, one)
		}
	}
	return out
}

// namesOf returns the names of controllers, in order.
func namesOf(all []*installation) []string {
	var out []string
	for _, one := range all {
		out = append(out, one.name.String())
	}
	slices.Sort(out)
	return out
}

// settle opens the planner with the controller's settings. The returned function removes the controller's files.
func (u *installedPlans) settle(
	ctx context.Context, cmd *cobra.Command, cluster *Cluster, rendered []unstructured.Unstructured, notes *[]string,
) (func(), error) {
	none := func() {}
	at, err := u.installed(ctx, cluster, rendered, notes)
	if err != nil {
		return none, err
	}
	remove := none
	if at == nil {
		*notes = append(*notes, "no controller was found: plans use the flags of this command")
	} else {
		dir, err := os.MkdirTemp("", "modelberth-preflight-")
		if err != nil {
			return none, err
		}
		remove = func() { _ = os.RemoveAll(dir) }
		if err := u.inherit(ctx, cmd, &surroundings{at, cluster, rendered}, dir); err != nil {
			remove()
			return none, err
		}
	}
	if err := u.planOptions.open(); err != nil {
		remove()
		return none, err
	}
	if at != nil {
		u.restrict(cluster, at)
	}
	return remove, nil
}

// inherit sets unset flags of this command to the controller's values. It writes the controller's files to a directory.
func (u *installedPlans) inherit(ctx context.Context, cmd *cobra.Command, from *surroundings, dir string) error {
	at := from.installation
	if err := from.readSettings(ctx); err != nil {
		return err
	}
	values := map[string][]string{"provisioner": at.provisioner()}
	for theirs, ours := range map[string]string{
		"cloud": "cloud", "os-disk-gib": "os-disk-gib", "local-disk-holds-pods": "local-disk-holds-pods", "rdma-resource": "rdma",
		"hub-endpoint": "hub-endpoint", "calibration-key": "calibration-key",
	} {
		values[ours] = at.args[theirs]
	}
	if at.last("describe-models") != "true" {
		values["offline"] = []string{"true"}
	}
	var err error
	if values["calibration"], err = from.files(ctx, "calibration-files", filepath.Join(dir, "calibration")); err != nil {
		return err
	}
	files, err := from.files(ctx, "catalog-overlay", filepath.Join(dir, "catalog"))
	if err != nil {
		return err
	}
	if len(files) > 0 {
		values["catalog"] = []string{filepath.Dir(files[0])}
	}
	if err := setFlags(cmd, at.name.String(), values); err != nil {
		return err
	}
	region, err := u.regionOf(ctx, from.cluster, at)
	if err != nil || region == "" {
		return err
	}
	return setFlags(cmd, at.name.String(), map[string][]string{"region": {region}})
}

// setFlags sets the flags that the user did not set.
func setFlags(cmd *cobra.Command, deployment string, values map[string][]string) error {
	for _, flag := range slices.Sorted(maps.Keys(values)) {
		if cmd.Flags().Changed(flag) {
			continue
		}
		for _, value := range values[flag] {
			if err := cmd.Flags().Set(flag, value); err != nil {
				return usageError("Deployment %s: --%s=%s: %w", deployment, flag, value, err)
			}
		}
	}
	return nil
}

// provisioner returns the controller's provisioner as values of --provisioner; none for any.
func (i *installation) provisioner() []string {
	isAgentPool := func(class string) bool { return strings.HasPrefix(class, "kaito.sh/KaitoNodeClass/") }
	switch {
	case i.last("capacity-backend") == "pods":
		return nil
	case slices.ContainsFunc(i.args["node-class"], isAgentPool):
		return []string{gpuProvisioner}
	default:
		return []string{"karpenter"}
	}
}

// surroundings has a controller and the sources of its files.
type surroundings struct {
	installation *installation
	cluster      *Cluster
	rendered     []unstructured.Unstructured
}

// files writes the files of a flag's ConfigMap into a new directory, and returns their names.
func (s *surroundings) files(ctx context.Context, flag, dir string) ([]string, error) {
	at := s.installation
	name := at.files[at.last(flag)]
	if at.last(flag) == "" || name == "" {
		return nil, nil
	}
	config, err := s.configMap(ctx, types.NamespacedName{Namespace: at.name.Namespace, Name: name})
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(config)) {
		file := filepath.Join(dir, filepath.Base(key))
		if err := os.WriteFile(file, []byte(config[key]), 0o600); err != nil {
			return nil, err
		}
		out = append(out, file)
	}
	return out, nil
}

// readSettings adds the flags in the ConfigMap of --settings-config-map.
func (s *surroundings) readSettings(ctx context.Context) error {
	at := s.installation
	namespace, name, isNamed := strings.Cut(at.last("settings-config-map"), "/")
	if !isNamed {
		return nil
	}
	data, err := s.configMap(ctx, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	for flag, text := range data {
		at.args[flag] = strings.Fields(text)
	}
	return nil
}

// configMap returns the data of a ConfigMap from the rendered chart, or else from the cluster. A missing ConfigMap is
// empty.
func (s *surroundings) configMap(ctx context.Context, name types.NamespacedName) (map[string]string, error) {
	for i := range s.rendered {
		if s.rendered[i].GetKind() == "ConfigMap" && s.rendered[i].GetName() == name.Name {
			data, _, err := unstructured.NestedStringMap(s.rendered[i].Object, "data")
			return data, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out := &corev1.ConfigMap{}
	err := client.IgnoreNotFound(s.cluster.Objects.Get(limited, name, out))
	if err != nil {
		return nil, worded(err, "ConfigMap "+name.String())
	}
	return out.Data, nil
}

// regionOf returns the controller's region for prices, or else the region of the cluster's nodes. It is empty if the
// nodes are in no region or several, or if the catalogue has no prices there.
func (u *installedPlans) regionOf(ctx context.Context, cluster *Cluster, at *installation) (string, error) {
	if region := at.last("region"); region != "" {
		return region, nil
	}
	known, err := u.load()
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	nodes := &corev1.NodeList{}
	if err := cluster.Objects.List(limited, nodes); err != nil {
		return "", worded(err, "Nodes")
	}
	var seen []string
	for i := range nodes.Items {
		region := nodes.Items[i].Labels[corev1.LabelTopologyRegion]
		if region != "" && !slices.Contains(seen, region) {
			seen = append(seen, region)
		}
	}
	if len(seen) != 1 || !slices.Contains(regions(known, u.clouds), seen[0]) {
		return "", nil
	}
	return seen[0], nil
}

// restrict gives the planner the controller's limits, and the measurements from the starts of its engines.
func (u *installedPlans) restrict(cluster *Cluster, at *installation) {
	u.limits.InstanceTypes = at.args["allow-instance-type"]
	u.pipeline.Resolver.Starts = (&evidence.Starts{
		Reader: cluster.Objects, Machines: u.catalog,
		Memory: at.last("calibrate-from-starts") != "false", Speed: at.last("calibrate-from-speeds") != "false",
	}).Of
	if at.last("spending-unlimited") == "true" {
		return
	}
	if ceiling, err := strconv.ParseFloat(at.last("spending-per-workspace"), 64); err == nil && ceiling > 0 {
		u.limits.Ceiling = planner.Ceiling{
			HourlyPrice: ceiling, Name: fmt.Sprintf("the ceiling of %s", at.name), Help: "raise spending.perWorkspace of the chart",
		}
	}
}
