// The constants of the quadruped: MuJoCo's Ant as its compiler makes it from Gymnasium's ant.xml. The four aux
// links are welded to the torso and counted into it. Lengths in metres, masses in kilogrammes.
#ifndef BRIM_QUADRUPED_MODEL_H_
#define BRIM_QUADRUPED_MODEL_H_

#define QUAD_GRAVITY 9.81
#define QUAD_HALF_SQRT2 0.70710678118654752440

// Length of a part of a leg: centre to hip, hip to knee, and knee to the middle of the ankle link. The foot is
// another such length away.
#define QUAD_LINK 0.28284271247461900976
#define QUAD_RADIUS 0.08
#define QUAD_TORSO_RADIUS 0.25

#define QUAD_TORSO_MASS 0.32724923474893675
#define QUAD_TORSO_INERTIA 0.008181230868723419
#define QUAD_HIP_MASS 0.03915775372846671  // mass of an aux link too
#define QUAD_HIP_ACROSS 0.0005679660831928
#define QUAD_HIP_ALONG 0.00011844189805957
#define QUAD_ANKLE_MASS 0.06759220453268026
#define QUAD_ANKLE_ACROSS 0.00267479066003818
#define QUAD_ANKLE_ALONG 0.00020943214063305

// Torso and aux links together: a plate with equal inertia along x and y.
#define QUAD_BASE_MASS (QUAD_TORSO_MASS + 4 * QUAD_HIP_MASS)
#define QUAD_AUX_FAR (QUAD_HIP_ACROSS + QUAD_HIP_MASS * (QUAD_LINK / 2) * (QUAD_LINK / 2))
#define QUAD_BASE_FLAT (QUAD_TORSO_INERTIA + 2 * QUAD_HIP_ALONG + 2 * QUAD_AUX_FAR)
#define QUAD_BASE_SPIN (QUAD_TORSO_INERTIA + 4 * QUAD_AUX_FAR)
#define QUAD_LEG_MASS (QUAD_HIP_MASS + QUAD_ANKLE_MASS)
#define QUAD_MASS (QUAD_BASE_MASS + 4 * QUAD_LEG_MASS)

#define QUAD_ARMATURE 1.0
#define QUAD_DAMPING 1.0
#define QUAD_GEAR 150.0
#define QUAD_HIP_LIMIT 0.52359877559829887308   // 30 degrees to both sides
#define QUAD_ANKLE_LOW 0.52359877559829887308   // 30 and 70 degrees, in the direction in which
#define QUAD_ANKLE_HIGH 1.22173047639603070385  // every ankle bends downwards

// Inverse weights at rest, by which MuJoCo divides a constraint's regularization.
#define QUAD_WEIGHT_TORSO 1.1014374991441787
#define QUAD_WEIGHT_AUX 1.1804717947906864
#define QUAD_WEIGHT_HIP 1.8087762335752948
#define QUAD_WEIGHT_ANKLE 3.984413328576989
#define QUAD_WEIGHT_HIP_JOINT 0.9826359559730786
#define QUAD_WEIGHT_ANKLE_JOINT 0.9951024317528863

// Softness of constraints: solref (0.02, 1), solimp (0.9, 0.95, 0.001, 0.5, 2).
#define QUAD_SOLREF_TIME 0.02
#define QUAD_SOLIMP_MIN 0.9
#define QUAD_SOLIMP_MAX 0.95
#define QUAD_SOLIMP_WIDTH 0.001

// Most Newton iterations. Newton usually ends when the active set repeats; for a state that is not finite it ends
// here.
#define QUAD_NEWTON_CAP 12

// Limits from which a state counts as diverged. No real body gets there, and the reward or the observations of such
// a state would outweigh all others. SPEED is the root of the sum of squares of all velocities (m/s and rad/s),
// PLACE that of all positions and angles.
#define QUAD_DIVERGED_SPEED 1000.0
#define QUAD_DIVERGED_PLACE 1e5

// Bits of brim's contact info for a leg: the points that touch the floor. The torso's bit stands with leg 0.
enum {
  QUAD_TOUCH_AUX_CENTRE = 1,
  QUAD_TOUCH_AUX_HIP = 2,
  QUAD_TOUCH_HIP_HIP = 4,
  QUAD_TOUCH_HIP_KNEE = 8,
  QUAD_TOUCH_ANKLE_KNEE = 16,
  QUAD_TOUCH_FOOT = 32,
  QUAD_TOUCH_TORSO = 64
};

#endif  // BRIM_QUADRUPED_MODEL_H_
